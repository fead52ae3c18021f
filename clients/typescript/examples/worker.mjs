import { Quell, Worker } from "quell-client";

/** @param {import("quell-client").Run<{ text: string }>} run */
async function handle(run) {
  const texts = run.events.map((event) => event.payload.text);
  const answer = await run.step("answer", () => `you said: ${texts.join(", ")}`); // kept over crashes
  await run.hold(); // newer messages? then the run starts over with all of them
  console.log(run.key, answer);
  return { answer };
}

const quell = new Quell(process.env.QUELL_URL, { token: process.env.QUELL_TOKEN });
await new Worker(quell, process.argv[2] ?? "chat", handle, { concurrency: 10 }).run();
