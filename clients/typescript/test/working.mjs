// A worker for tests that is a process of its own: node working.mjs QUEUE MODE [NAME=VALUE…]
//
// hang  says `began KEY attempt N`, then waits until it is told to stop, and hands the run back
// deaf  says the same, and listens to nobody
// done  says `did KEY IDS`, and is done

import { Quell, Release, Worker } from "quell-client";

const [queue, mode, ...pairs] = process.argv.slice(2);
const settings = Object.fromEntries(pairs.map((pair) => pair.split("=")));

async function handle(run) {
  if (mode === "done") {
    console.log("did", run.key, ...run.events.map((event) => event.id));
    return { by: process.pid };
  }
  console.log(`began ${run.key} attempt ${run.attempt}`);
  if (mode === "deaf") await new Promise(() => {});
  while (!(await run.wait(60_000)));
  throw new Release("told to stop");
}

const worker = new Worker(new Quell(process.env.QUELL_URL), queue, handle, {
  concurrency: Number(settings.concurrency ?? 4),
  leaseMs: Number(settings.leaseMs ?? 30_000),
  graceMs: Number(settings.graceMs ?? 20_000),
});
console.log("ready", worker.name);
await worker.run();
console.log("stopped");
