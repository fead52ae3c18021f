// Real processes that die, are stopped, and servers that go away: nothing is lost, and nothing is done twice by its id.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { HERE, Server, clientOf, ended, program, until } from "./support.mjs";

let server;
let quell;

before(async () => {
  server = await Server.start();
  quell = clientOf(server);
});
after(() => server.stop());

const working = (t, args, url = server.url) => program(t, join(HERE, "working.mjs"), args, { QUELL_URL: url });

/** Long before the lease of a minute could have ended, as the first attempt. */
async function takenUpAtOnce(t, receipts) {
  const second = working(t, ["jobs", "done"]);
  for (const [key, receipt] of Object.entries(receipts)) {
    await second.line(`did ${key}`);
    const run = await ended(quell, receipt.runId);
    assert.deepEqual([run.state, run.attempts, run.claims], ["succeeded", 1, 2], key);
  }
  await second.terminate();
}

describe("processes", () => {
  test("a killed worker is taken over", async (t) => {
    const first = working(t, ["jobs", "deaf", "leaseMs=2000"]);
    await first.line("ready");
    const { runId } = await quell.append("jobs", "ada", 1);
    await first.line("began ada attempt 1");
    await first.kill();
    const second = working(t, ["jobs", "done"]);
    await second.line("did ada");
    const run = await ended(quell, runId);
    assert.deepEqual([run.state, run.attempts, run.result], ["succeeded", 2, { by: second.child.pid }]);
  });

  test("a worker that is told to stop hands back, and the attempt is refunded", async (t) => {
    const worker = working(t, ["jobs", "hang", "leaseMs=60000"]);
    await worker.line("ready");
    const receipts = {};
    for (const key of ["bob", "cy"]) {
      receipts[key] = await quell.append("jobs", key, 1);
      await worker.line(`began ${key} attempt 1`);
    }
    assert.equal(await worker.terminate(), 0, worker.lines.join("\n"));
    assert.equal(worker.lines.at(-1), "stopped");
    await takenUpAtOnce(t, receipts);
  });

  test("a handler that does not listen is handed back after the grace", async (t) => {
    const worker = working(t, ["jobs", "deaf", "leaseMs=60000", "graceMs=200"]);
    await worker.line("ready");
    const dan = await quell.append("jobs", "dan", 1);
    await worker.line("began dan attempt 1");
    assert.equal(await worker.terminate(), 0, worker.lines.join("\n"));
    await takenUpAtOnce(t, { dan });
  });

  test("a second signal does not wait for the grace", async (t) => {
    const worker = working(t, ["jobs", "deaf", "leaseMs=60000", "graceMs=3000000"]);
    await worker.line("ready");
    const eve = await quell.append("jobs", "eve", 1);
    await worker.line("began eve attempt 1");
    worker.child.kill("SIGTERM");
    worker.child.kill("SIGINT");
    assert.equal(await worker.wait(), 0, worker.lines.join("\n"));
    await takenUpAtOnce(t, { eve });
  });

  test("a server that is killed in the middle loses nothing, and nothing is done twice by its id", async (t) => {
    const mortal = await Server.start();
    t.after(() => mortal.stop());
    const patient = clientOf(mortal, { patienceMs: 60_000 });
    const worker = working(t, ["jobs", "done", "leaseMs=120000"], mortal.url);
    await worker.line("ready");
    const ids = [];
    for (let n = 0; n < 60; n += 1) {
      if (n === 15 || n === 40) {
        await mortal.process.kill();
        await mortal.begin();
      }
      ids.push((await patient.append("jobs", `key-${n % 4}`, n, { id: `event-${n}` })).eventId);
    }
    const totals = async () => (await patient.request("GET", "/v1/stats")).queues.find((queue) => queue.queue === "jobs");
    await until("all sixty", async () => (await totals()).succeeded === 60);
    assert.equal(await worker.terminate(), 0, worker.lines.join("\n"));
    const { accepted, succeeded, dead } = await totals();
    assert.deepEqual([accepted, succeeded, dead], [60, 60, 0]);
    const did = worker.lines.filter((line) => line.startsWith("did ")).map((line) => line.split(" ").slice(1));
    // No lease was over meanwhile, so every lost answer was asked for again, and nothing was handed out twice.
    assert.deepEqual(did.flatMap(([, ...those]) => those).sort(), [...ids].sort());
    for (const [n, id] of ids.entries()) {
      assert.ok((await patient.append("jobs", `key-${n % 4}`, n, { id })).duplicate);
    }
    for (const key of [0, 1, 2, 3]) {
      const those = did.filter(([name]) => name === `key-${key}`).flatMap(([, ...those]) => those);
      const order = those.map((id) => Number(id.split("-")[1]));
      assert.deepEqual(order, [...order].sort((a, b) => a - b), `key-${key} in order`);
    }
  });
});
