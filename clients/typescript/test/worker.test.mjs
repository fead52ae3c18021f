// Work out: claims, leases, steps, the gate and every way a run can end.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import {
  AlreadySettled,
  Failed,
  Interrupted,
  LeaseLost,
  NotPulled,
  Quell,
  Release,
  Retry,
  StepUnknown,
  Succeeded,
  Superseded,
  UnknownQueue,
  Worker,
} from "quell-client";
import { LossyProxy, Server, clientOf, ended, pause, until } from "./support.mjs";

let server;
let quell;

before(async () => {
  server = await Server.start();
  quell = clientOf(server);
});
after(() => server.stop());

/** A worker in this process; stopped at the end of the test. */
function work(t, queue, handler, options = {}, by = quell) {
  const worker = new Worker(by, queue, handler, { waitMs: 5_000, log: () => {}, ...options });
  worker.start();
  t.after(() => worker.stop({ graceMs: 0 }));
  return worker;
}

/** Sends one event; the run it is in, when it has ended. */
async function done(queue, key, payload = 1) {
  const { runId } = await quell.append(queue, key, payload);
  return ended(quell, runId);
}

async function claimed(queue, options) {
  return until("a run", async () => {
    const runs = await quell.claim(queue, { waitMs: 5_000, ...options });
    return runs.length > 0 ? runs : null;
  });
}

async function longPolls() {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return Number(/^quell_http_long_polls (\S+)$/m.exec(text)?.[1] ?? 0);
}

describe("worker", () => {
  test("a burst is one batch", async (t) => {
    const seen = [];
    const receipts = [];
    for (let n = 0; n < 5; n += 1) receipts.push(await quell.append("chat", "burst", { n }));
    work(t, "chat", (run) => void seen.push(run));
    const run = await ended(quell, receipts[0].runId);
    assert.deepEqual([run.state, run.fired_by, run.events], ["succeeded", "quiet", 5]);
    const [only] = seen.filter((one) => one.key === "burst");
    assert.deepEqual(only.events.map((event) => event.payload.n), [0, 1, 2, 3, 4]);
    assert.deepEqual(only.events.map((event) => event.id), receipts.map((receipt) => receipt.eventId));
    assert.deepEqual([only.attempt, only.queue, only.tenant, only.isLastAttempt], [1, "chat", "", false]);
  });

  test("keys are worked on at once, and each in its order", async (t) => {
    const keys = Array.from({ length: 6 }, (_, n) => `order-${n}`);
    const busy = new Map();
    const seen = Object.fromEntries(keys.map((key) => [key, []]));
    let together = 0;
    let twice = 0;
    const handle = async (run) => {
      if (busy.has(run.key)) twice += 1;
      busy.set(run.key, true);
      together = Math.max(together, busy.size);
      await pause(20);
      seen[run.key].push(...run.events.map((event) => event.payload));
      busy.delete(run.key);
    };
    work(t, "jobs", handle, { concurrency: 4 });
    for (let n = 0; n < 8; n += 1) for (const key of keys) await quell.append("jobs", key, n);
    await until("all events", () => Object.values(seen).flat().length === 48);
    for (const key of keys) assert.deepEqual(seen[key], [0, 1, 2, 3, 4, 5, 6, 7], key);
    assert.equal(twice, 0, "one worker at a time");
    assert.ok(together > 1 && together <= 4, `${together} keys at once`);
  });

  test("heartbeats keep a lease that is shorter than the work", async (t) => {
    const attempts = [];
    const handle = async (run) => {
      attempts.push(run.attempt);
      assert.equal(await run.wait(7_000), false, "nobody wants it to stop");
      assert.ok(run.leftMs > 0);
    };
    work(t, "jobs", handle, { leaseMs: 3_000, concurrency: 2 });
    const run = await done("jobs", "long");
    assert.deepEqual([run.state, run.attempts, attempts], ["succeeded", 1, [1]]);
  });

  test("a retried run reuses what its step has stored", async (t) => {
    const paid = [];
    const handle = async (run) => {
      const pay = () => {
        paid.push(run.attempt);
        return ["one", { a: null }];
      };
      const answer = await run.step("paid/call", pay);
      const nothing = await run.step("nothing", async () => {});
      if (run.attempt === 1) throw new Error("after it was paid");
      return [answer, nothing, run.stepKey("paid/call")];
    };
    work(t, "jobs", handle);
    const run = await done("jobs", "steps");
    assert.deepEqual([run.state, run.attempts, paid], ["succeeded", 2, [1]]);
    assert.deepEqual(run.result, [["one", { a: null }], null, `${run.id}/0/paid/call`]);
  });

  test("a step that must not be done twice is unknown after a failure", async (t) => {
    const sent = [];
    const send = (run) => {
      sent.push(run.attempt);
      throw new Retry("the connection broke while it was sent", { afterMs: 10 });
    };
    const handle = async (run) => {
      await run.stepOnce("first", () => "good");
      assert.equal(await run.stepOnce("first", () => "bad"), "good");
      await run.stepOnce("send", () => send(run));
    };
    const worker = work(t, "jobs", handle);
    const lost = await done("jobs", "once");
    assert.deepEqual([lost.state, lost.attempts, sent], ["failed", 2, [1]]);
    assert.ok(lost.error.includes("may have happened"), lost.error);
    await worker.stop();
    work(t, "jobs", async (run) => {
      try {
        return await run.stepOnce("send", () => send(run));
      } catch (error) {
        if (!(error instanceof StepUnknown)) throw error;
        return `a person looks after ${error.step}`;
      }
    });
    const decided = await done("jobs", "once", 2);
    assert.deepEqual([decided.state, decided.result, sent], ["succeeded", "a person looks after send", [1, 1]]);
  });

  test("a retry comes after what the handler asked for", async (t) => {
    const began = [];
    work(t, "jobs", (run) => {
      began.push(performance.now());
      if (run.attempt === 1) throw new Retry("busy", { afterMs: 1_500 });
    });
    const run = await done("jobs", "later");
    assert.deepEqual([run.state, run.attempts, run.retries], ["succeeded", 2, 1]);
    assert.ok(began[1] - began[0] >= 1_400, `${began}`);
  });

  test("a failed run is in the dead letter with its text", async (t) => {
    work(t, "jobs", () => {
      throw new Failed("no such article");
    });
    const run = await done("jobs", "dead", { article: "?" });
    assert.deepEqual([run.state, run.attempts], ["failed", 1]);
    const dead = (await quell.request("GET", "/v1/dead?queue=jobs")).items.filter((one) => one.key === "dead");
    assert.deepEqual(dead.map((one) => [one.id, one.error]), [[run.id, "no such article"]]);
  });

  test("an error is tried again until the attempts are used up, or fails at once", async (t) => {
    const handle = async () => {
      throw new TypeError("no text");
    };
    const worker = work(t, "jobs", handle);
    const run = await done("jobs", "throws");
    assert.deepEqual([run.state, run.attempts, run.error], ["failed", 3, "TypeError: no text"]);
    await worker.stop();
    work(t, "jobs", handle, { onError: "failed" });
    const once = await done("jobs", "throws", 2);
    assert.deepEqual([once.state, once.attempts], ["failed", 1]);
  });

  test("results and usage are kept, and what is no result is told", async (t) => {
    const results = { good: [1, 2], huge: "x".repeat(1 << 20), bad: 1n, said: new Succeeded("yes") };
    const handle = (run) => {
      run.usage.tokens = 512;
      return results[run.key];
    };
    work(t, "jobs", handle, { concurrency: 4 });
    const runs = await Promise.all(Object.keys(results).map((key) => done("jobs", key)));
    const [good, huge, bad, said] = runs;
    assert.deepEqual([good.result, good.usage], [[1, 2], { tokens: 512 }]);
    assert.equal(said.result, "yes");
    for (const run of [huge, bad]) {
      assert.deepEqual([run.state, run.attempts], ["failed", 1], run.key);
      assert.ok(run.error.includes("the outcome `succeeded` was refused"), run.error);
    }
  });

  test("newer events interrupt a run, and it starts over with them", async (t) => {
    const batches = [];
    const told = [];
    const handle = async (run) => {
      batches.push(run.events.map((event) => event.payload));
      if (batches.length === 1) {
        told.push(await run.wait(30_000), run.interrupted, run.cancelled, run.signal.aborted);
        await assert.rejects(run.step("late", () => assert.fail("not wanted any more")), Interrupted);
        run.check();
      }
      return run.events.length;
    };
    work(t, "cut", handle, { heartbeatMs: 100 });
    const { runId } = await quell.append("cut", "ada", 1);
    await until("it begins", () => batches.length === 1);
    await quell.append("cut", "ada", 2);
    const run = await ended(quell, runId);
    assert.deepEqual([run.state, run.result, batches], ["succeeded", 2, [[1], [1, 2]]]);
    assert.deepEqual([run.attempts, run.interrupts], [1, 1], "the attempt was given back");
    assert.deepEqual(told, [true, true, false, true]);
  });

  test("the gate supersedes a run that newer events have met", async (t) => {
    const batches = [];
    const met = [];
    const handle = async (run) => {
      batches.push(run.events.map((event) => event.payload));
      if (batches.length === 1) {
        await quell.append("gate", "ada", 2);
        try {
          await run.hold();
        } catch (error) {
          met.push([error instanceof Superseded, run.interrupted]);
          return; // Whatever it answers, the attempt is over.
        }
      }
      await run.hold();
      await run.hold({ anyway: true });
      met.push("held");
    };
    work(t, "gate", handle);
    const run = await done("gate", "ada");
    assert.deepEqual([run.state, run.attempts, batches], ["succeeded", 1, [[1], [1, 2]]]);
    assert.deepEqual(met, [[true, true], "held"]);
  });

  test("success can be made to depend on nothing newer", async (t) => {
    work(t, "gate", async (run) => {
      if (run.events.length === 1) await quell.append("gate", "bob", 2);
      return new Succeeded(run.events.length, { ifHead: run.headSeq });
    });
    const run = await done("gate", "bob");
    assert.deepEqual([run.state, run.result, run.attempts], ["succeeded", 2, 1]);
  });

  test("an operator can cancel a run", async (t) => {
    let began = false;
    let cancelled = false;
    const handle = async (run) => {
      began = true;
      while (!(await run.wait(30_000)));
      cancelled = run.cancelled;
      run.check();
    };
    work(t, "jobs", handle, { heartbeatMs: 100 });
    const { runId } = await quell.append("jobs", "stop-it", 1);
    await until("it begins", () => began);
    await quell.request("POST", `/v1/runs/${runId}/cancel`, {});
    assert.deepEqual([(await ended(quell, runId)).state, cancelled], ["cancelled", true]);
  });

  test("a handler may hand its run back", async (t) => {
    const seen = [];
    work(t, "jobs", (run) => {
      seen.push(run.attempt);
      if (seen.length === 1) throw new Release("not here");
    });
    const run = await done("jobs", "back");
    assert.deepEqual([run.state, run.attempts, run.claims, seen], ["succeeded", 1, 2, [1, 1]]);
  });

  test("a run whose lease was lost counts for nothing", async () => {
    const { runId } = await quell.append("jobs", "lost", 1);
    const [late] = await claimed("jobs", { leaseMs: 100 });
    await until("the end of its lease", () => late.interrupted);
    assert.throws(() => late.check(), LeaseLost);
    const [next] = await claimed("jobs", { leaseMs: 30_000 });
    assert.deepEqual([next.runId, next.attempt], [late.runId, 2]);
    assert.ok(next.token > late.token);
    for (const call of [() => late.extend(), () => late.hold(), () => late.settle("succeeded"), () => late.step("x", () => 1)]) {
      await assert.rejects(call, LeaseLost);
    }
    assert.ok(late.lost.includes("not this worker's any more"), late.lost);
    assert.equal((await next.settle("succeeded")).state, "succeeded");
    await assert.rejects(quell.settle(next.runId, next.token, "failed"), AlreadySettled);
    assert.ok((await quell.settle(next.runId, next.token, "succeeded")).repeated);
    assert.equal((await ended(quell, runId)).attempts, 2);
  });

  test("a claim that is repeated gets what it got", async () => {
    await quell.append("jobs", "named", 1);
    const wish = { worker: "w", claimId: "c-1", leaseMs: 30_000, waitMs: 5_000 };
    const [first] = await quell.claim("jobs", wish);
    const [again] = await quell.claim("jobs", wish);
    assert.deepEqual([first.runId, first.token], [again.runId, again.token]);
    const before = again.leftMs;
    const heartbeat = again.kept(50);
    await until("a heartbeat", () => again.leftMs > before - 10);
    heartbeat.stop();
    await again.settle("succeeded");
  });

  test("answers that are lost are asked for again, and nothing is done twice", async (t) => {
    const lose = { "/events": 1, "/v1/claims ": 3, "/steps/": 3, "/hold": 2, "/settle": 3, "/extend": 2 };
    const proxy = await LossyProxy.start(t, server.port, lose);
    const did = [];
    const handle = async (run) => {
      const value = (await run.step("one", () => 1)) + (await run.stepOnce("two", () => 2));
      await run.hold();
      await run.wait(500);
      did.push([run.key, run.attempt]);
      return value;
    };
    const lossy = new Quell(proxy.url);
    work(t, "jobs", handle, { leaseMs: 20_000, heartbeatMs: 100 }, lossy);
    const { runId } = await lossy.append("jobs", "lossy", 1);
    const run = await ended(quell, runId);
    assert.deepEqual([run.state, run.result, run.attempts, run.claims], ["succeeded", 3, 1, 1]);
    assert.deepEqual(did, [["lossy", 1]]);
    assert.deepEqual([...new Set(proxy.lost)].sort(), Object.keys(lose).sort(), "every kind of answer was lost");
  });

  test("a worker that asks for what it cannot have says why", async () => {
    for (const [queue, reason] of [
      ["own", NotPulled],
      ["nothing", UnknownQueue],
    ]) {
      await assert.rejects(new Worker(quell, queue, () => {}).run(), reason);
    }
    for (const wrong of [{ concurrency: 0 }, { onError: "ignore" }]) {
      assert.throws(() => new Worker(quell, "jobs", () => {}, wrong), RangeError);
    }
  });

  test("a worker that stops while it waits holds nothing", async (t) => {
    const worker = work(t, "chat", () => {}, { waitMs: 50_000 });
    await until("a long poll", async () => (await longPolls()) === 1);
    const started = performance.now();
    await worker.stop();
    assert.ok(performance.now() - started < 20_000, "it does not wait for the poll");
    await until("its poll to be gone", async () => (await longPolls()) === 0);
    const { runId } = await quell.append("chat", "after", 1);
    work(t, "chat", () => {});
    const run = await ended(quell, runId);
    assert.deepEqual([run.state, run.claims], ["succeeded", 1]);
  });
});
