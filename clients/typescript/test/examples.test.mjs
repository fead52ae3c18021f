// The examples do what they say, as processes against a real server; the first worker of the README is one of them.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { CONFIG, HERE, Server, clientOf, ended, program } from "./support.mjs";

const EXAMPLES = join(HERE, "../examples");
const SECRET = "whsec_bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0=";

let server;

before(async () => {
  server = await Server.start();
});
after(() => server.stop());

const example = (t, name, args, more) => {
  delete process.env.QUELL_TOKEN;
  return program(t, join(EXAMPLES, name), args, { QUELL_URL: server.url, ...more });
};

async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

describe("examples", () => {
  test("what one example sends, another one answers", async (t) => {
    const worker = example(t, "worker.mjs", ["chat"]);
    const sender = example(t, "send.mjs", ["chat", "ada", "hi", "are you there?"]);
    assert.equal(await sender.wait(), 0, sender.lines.join("\n"));
    assert.equal(await worker.line("ada"), "ada you said: hi, are you there?");
    assert.equal(sender.lines.length, 2);
    const run = await ended(clientOf(server), sender.lines[0].split(" ").at(-1));
    assert.deepEqual(run.result, { answer: "you said: hi, are you there?" });
    assert.equal(await worker.terminate(), 0, worker.lines.join("\n"));
  });

  test("the receiver takes what the server pushes, and nothing else", async (t) => {
    const port = await freePort();
    const receiver = example(t, "receiver.mjs", [String(port)], { PUSH_SECRET: `${SECRET} ${SECRET}` });
    const push = `
[queues.push]
window = { quiet = "100ms" }
retry = { base = "200ms" }
handler = { http = "http://127.0.0.1:${port}/", secret_env = "PUSH_SECRET" }
`;
    const pushing = await Server.start(CONFIG + push, { PUSH_SECRET: SECRET });
    t.after(() => pushing.stop());
    const quell = clientOf(pushing);
    await quell.append("push", "ada", { text: "hi" });
    const { runId } = await quell.append("push", "ada", { text: "are you there?" });
    const line = await receiver.line("ada");
    assert.ok(line.endsWith("ada you said: hi, are you there?"), line);
    assert.deepEqual((await ended(quell, runId)).result, { answer: "you said: hi, are you there?" });
    const forged = await fetch(`http://127.0.0.1:${port}/`, { method: "POST", body: "{}" });
    assert.equal(forged.status, 401);
    await receiver.line("refused missing_signature");
  });

  test("the first worker of the README is the example", () => {
    const readme = readFileSync(join(HERE, "../README.md"), "utf8");
    assert.ok(readme.includes(readFileSync(join(EXAMPLES, "worker.mjs"), "utf8")));
  });
});
