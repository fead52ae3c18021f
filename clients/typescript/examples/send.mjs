// Sends events to a queue: node send.mjs QUEUE KEY TEXT…
//
// QUELL_URL and QUELL_TOKEN say where and as whom.

import { Quell } from "quell-client";

const quell = new Quell(process.env.QUELL_URL, { token: process.env.QUELL_TOKEN });
const [queue = "chat", key = "ada", ...texts] = process.argv.slice(2);
for (const receipt of await quell.appendMany(queue, texts.map((text) => ({ key, payload: { text } })))) {
  console.log(receipt.eventId, receipt.seq, receipt.runId);
}
