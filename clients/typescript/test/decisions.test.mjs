// Everything that is decided without a server: pauses, endings, problems, paths.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  ConnectionFailed,
  Failed,
  Interrupted,
  LeaseLost,
  QueueFull,
  Release,
  Retry,
  StepUnknown,
  Superseded,
  TooManyRequests,
  Unavailable,
  UnknownOutcome,
} from "quell-client";
import { inside } from "./support.mjs";

const { part } = await inside("client.js");
const { readProblem } = await inside("errors.js");
const { every, firstAfter } = await inside("heartbeat.js");
const { endingOfError } = await inside("outcome.js");
const { margin } = await inside("run.js");
const { milliseconds, writeEnding } = await inside("shapes.js");
const { pauseBefore } = await inside("transport.js");

/** As it would be sent: what is not there is left out. */
const sent = (value) => JSON.parse(JSON.stringify(value));

describe("decisions", () => {
  test("pauses double up to a bound, and a wish of the server wins", () => {
    const lost = new ConnectionFailed("lost");
    assert.deepEqual([0, 1, 2].map((n) => pauseBefore(n, lost, 0)), [50, 100, 200]);
    assert.ok(pauseBefore(10_000, lost, 0.999) <= 5_000);
    assert.equal(pauseBefore(0, new TooManyRequests(429, "too-many-requests", "later", null, 7_000), 0.5), 7_000);
  });

  test("a problem document becomes its error", () => {
    const body = JSON.stringify({ code: "queue-full", detail: "too much waits", place: "[3]" });
    const problem = readProblem(429, "2", body);
    assert.ok(problem instanceof QueueFull && problem instanceof TooManyRequests);
    assert.equal(problem.message, "429 queue-full: too much waits (at [3])");
    assert.deepEqual([problem.retryAfterMs, problem.temporary, problem.name], [2_000, true, "QueueFull"]);
    assert.ok(readProblem(409, null, '{"code":"superseded"}') instanceof Superseded);
    const unknown = readProblem(418, null, '{"code":"constructor","detail":"x"}');
    assert.deepEqual([unknown.code, unknown.temporary, unknown.name], ["constructor", false, "InvalidRequest"]);
  });

  test("what a proxy answers is told, and may be temporary", () => {
    for (const [status, kind] of [
      [502, UnknownOutcome],
      [504, UnknownOutcome],
      [503, Unavailable],
    ]) {
      const problem = readProblem(status, null, "<html>\n bad  gateway </html>");
      assert.equal(problem.constructor, kind);
      assert.ok(problem.message.includes("<html> bad gateway </html>"), problem.message);
      assert.ok(problem.temporary);
    }
    assert.equal(readProblem(500, "soon", "[]").temporary, false);
  });

  test("every error of a handler has one ending", () => {
    const end = (error, told = {}) =>
      sent(endingOfError(error, { interrupted: false, cancelled: false, onError: "retry", ...told }));
    assert.deepEqual(end(new Retry("busy", { afterMs: 2 })), { outcome: "retry", error: "busy", retryAfterMs: 2 });
    assert.deepEqual(end(new Retry()), { outcome: "retry" });
    assert.deepEqual(end(new Failed("no")), { outcome: "failed", error: "no" });
    assert.deepEqual(end(new Release()), { outcome: "release" });
    assert.deepEqual(end(new TypeError("x")), { outcome: "retry", error: "TypeError: x" });
    assert.deepEqual(end("a text", { onError: "failed" }), { outcome: "failed", error: "a text" });
    assert.deepEqual(end(new TypeError("x"), { interrupted: true }), { outcome: "interrupted" });
    assert.equal(end(new Failed("no"), { interrupted: true }).outcome, "failed", "what it says itself counts");
    assert.equal(end(new Interrupted("x")).outcome, "interrupted");
    assert.equal(end(new Interrupted("x"), { cancelled: true }).outcome, "release");
    assert.equal(end(new LeaseLost("unsure")).outcome, "release");
    assert.equal(end(new StepUnknown("send")).outcome, "failed");
    assert.equal(end(new ConnectionFailed("away"), { onError: "failed" }).outcome, "retry", "no fault of the work");
    assert.equal(end(new Error("x".repeat(9_999))).error.length, 4_096);
  });

  test("an ending is sent with what it has and nothing else", () => {
    assert.deepEqual(sent(writeEnding(5, { outcome: "succeeded", usage: {} })), { token: 5, outcome: "succeeded" });
    const told = {
      outcome: "retry",
      error: "e",
      retryAfterMs: 500,
      usage: { n: 1 },
      sourceFault: { kind: "too_many_requests", retryAfterMs: 2_000 },
      sourceUnused: true,
    };
    assert.deepEqual(sent(writeEnding(5, told)), {
      token: 5,
      outcome: "retry",
      error: "e",
      retry_after_ms: 500,
      usage: { n: 1 },
      source_fault: { kind: "too_many_requests", retry_after_ms: 2_000 },
      source_unused: true,
    });
  });

  test("heartbeats come at a third, and at once for a claim that came late", () => {
    assert.deepEqual([60_000, 600_000, 9_000].map(every), [20_000, 20_000, 3_000]);
    assert.deepEqual([60, 45, 1].map((left) => firstAfter(left, 60, 20)), [20, 5, 0]);
    for (const lease of [100, 1_000, 60_000, 86_400_000]) {
      assert.ok(margin(lease) + every(lease) < lease, "a heartbeat fits before it");
    }
  });

  test("durations and names are written as the server reads them", () => {
    assert.deepEqual([0, 1.4].map(milliseconds), [0, 1]);
    for (const wrong of [-1, NaN, Infinity]) assert.throws(() => milliseconds(wrong), RangeError);
    assert.deepEqual(["a/b c", "..", "é", "run_1.2"].map(part), ["a%2Fb%20c", "%2E%2E", "%C3%A9", "run_1.2"]);
  });
});
