// Events in: what a sender may rely on.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import {
  Conflict,
  ConnectionFailed,
  InvalidRequest,
  LaneNotIdle,
  Quell,
  ServerError,
  TooLarge,
  Unauthorized,
  UnknownQueue,
} from "quell-client";
import { LossyProxy, Server, clientOf, until } from "./support.mjs";

let server;
let quell;

before(async () => {
  server = await Server.start();
  quell = clientOf(server);
});
after(() => server.stop());

/** The error that a call throws, which must be of this kind. */
async function refusal(kind, call) {
  try {
    await call();
  } catch (error) {
    assert.ok(error instanceof kind, String(error));
    return error;
  }
  return assert.fail("it was not refused");
}

describe("append", () => {
  test("a known id is answered with the first receipt", async () => {
    const first = await quell.append("chat", "ada", { text: "hi" }, { id: "msg-1" });
    const again = await quell.append("chat", "ada", { text: "hi" }, { id: "msg-1" });
    assert.deepEqual([first.eventId, first.duplicate, first.state], ["msg-1", false, "pending"]);
    assert.deepEqual([again.eventId, again.duplicate, again.seq], ["msg-1", true, first.seq]);
  });

  test("a known id with another payload is a conflict", async () => {
    await quell.append("chat", "bob", 1, { id: "msg-1" });
    const refused = await refusal(Conflict, () => quell.append("chat", "bob", 2, { id: "msg-1" }));
    assert.deepEqual([refused.status, refused.code, refused.name], [409, "conflict", "Conflict"]);
    assert.deepEqual([refused.eventIds, refused.temporary], [["msg-1"], false]);
  });

  test("a bad key is refused with a text that says what a key is", async () => {
    for (const [key, text] of [
      ["", "key is empty"],
      ["x".repeat(513), "512"],
      ["a\0b", "NUL"],
    ]) {
      const refused = await refusal(InvalidRequest, () => quell.append("chat", key, 1));
      assert.ok(refused.message.includes(text), refused.message);
    }
    const many = [
      { key: "good", payload: 1 },
      { key: "", payload: 1 },
    ];
    assert.equal((await refusal(InvalidRequest, () => quell.appendMany("chat", many))).place, "[1]");
    const unknown = await refusal(UnknownQueue, () => quell.append("nothing", "ada", 1));
    assert.ok(unknown.detail.includes("[queues.nothing]"), unknown.detail);
  });

  test("many are stored all or none, with receipts in their order", async () => {
    const ids = Array.from({ length: 50 }, (_, n) => `n-${n}`);
    const receipts = await quell.appendMany("chat", ids.map((id, payload) => ({ key: "cy", payload, id })));
    assert.deepEqual(receipts.map((receipt) => receipt.eventId), ids);
    const seqs = receipts.map((receipt) => receipt.seq);
    assert.deepEqual(seqs, [...seqs].sort((a, b) => a - b));
    const mixed = [
      { key: "cy", payload: "new", id: "new" },
      { key: "cy", payload: "other", id: "n-1" },
    ];
    await refusal(Conflict, () => quell.appendMany("chat", mixed));
    assert.equal((await quell.append("chat", "cy", "new", { id: "new" })).duplicate, false, "nothing of it was stored");
    assert.deepEqual(await quell.appendMany("chat", []), []);
  });

  test("options of an event are understood by the server", async () => {
    const aside = await quell.append("chat", "dan", 1, { delayMs: 3_600_000, priority: 9, tenant: "acme" });
    assert.deepEqual([aside.seq, aside.runId], [null, null]);
    await quell.append("chat", "eve", 1, { window: { fixed: { waitMs: 60_000 } } });
    await refusal(LaneNotIdle, () => quell.append("chat", "eve", 2, { onlyIfIdle: true }));
    const soon = await quell.append("chat", "fay", 1, { window: { quiet: { quietMs: 10, maxWaitMs: 20 } } });
    const none = await quell.append("chat", "gil", 1, { window: { none: {} } });
    assert.ok(soon.dueAt instanceof Date && none.dueAt instanceof Date);
    await refusal(RangeError, () => quell.append("chat", "hal", 1, { delayMs: -1 }));
    await refusal(InvalidRequest, () => quell.append("chat", "hal", 1, { id: "" }));
  });

  test("what is no JSON never leaves", async () => {
    for (const payload of [undefined, () => 1, 1n]) await refusal(TypeError, () => quell.append("chat", "ivy", payload));
    await refusal(TooLarge, () => quell.append("chat", "ivy", "x".repeat(9 << 20)));
  });

  test("an answer that is lost is asked for again, and the event is stored once", async (t) => {
    const proxy = await LossyProxy.start(t, server.port, { "/events": 2 });
    const receipt = await new Quell(proxy.url).append("chat", "jim", { text: "once" });
    assert.equal(proxy.lost.length, 2);
    assert.ok(receipt.duplicate, "the second answer is about the first call");
    assert.equal((await quell.request("GET", "/v1/lanes/chat/jim")).buffered, 1);
  });

  test("without patience an unknown outcome is told with the id to repeat it with", async (t) => {
    const proxy = await LossyProxy.start(t, server.port, { "/events": 1 });
    const hasty = new Quell(proxy.url, { patienceMs: 0 });
    const unknown = await refusal(ConnectionFailed, () => hasty.append("chat", "kim", 1));
    const [id] = unknown.eventIds;
    assert.ok((await quell.append("chat", "kim", 1, { id })).duplicate);
  });

  test("nobody there is told with the address", async () => {
    const started = performance.now();
    const nobody = new Quell("http://127.0.0.1:1", { patienceMs: 300 });
    const refused = await refusal(ConnectionFailed, () => nobody.append("chat", "ada", 1));
    assert.ok(refused.message.includes("http://127.0.0.1:1"), refused.message);
    assert.ok(performance.now() - started > 50, "it was tried again");
  });

  test("the address of something else is noticed", async () => {
    for (const url of ["ftp://x", "127.0.0.1:7717", "http://me:secret@127.0.0.1", ""]) {
      assert.throws(() => new Quell(url), TypeError, url);
    }
    const other = await refusal(ServerError, () => quell.request("GET", "/metrics"));
    assert.ok(other.message.includes("is no JSON"), other.message);
  });

  test("a server with tokens refuses those without", async (t) => {
    const guarded = await Server.start();
    t.after(() => guarded.stop());
    const token = await guarded.quell("token", "create", "sender", "--scope", "ingest");
    // Servers look at the list of tokens every two seconds.
    await until("the server to know its first token", () =>
      clientOf(guarded)
        .append("chat", "ada", 1)
        .then(() => false, (error) => error instanceof Unauthorized),
    );
    assert.equal((await clientOf(guarded, { token }).append("chat", "ada", 2)).duplicate, false);
  });
});
