// Signatures of pushed batches: the same vectors as the server and the other clients.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";

import { SignatureError, verify } from "quell-client";
import { HERE } from "./support.mjs";

const vectors = JSON.parse(readFileSync(join(HERE, "../../vectors.json"), "utf8"));
const options = { toleranceMs: vectors.tolerance * 1000, now: vectors.now * 1000 };
const bytes = (vector) => Buffer.from(vector.body_base64, "base64");

function verdict(call) {
  try {
    call();
    return "ok";
  } catch (error) {
    if (!(error instanceof SignatureError)) throw error;
    return error.reason;
  }
}

describe("signatures", () => {
  test("every vector gets the verdict of the server", () => {
    for (const vector of vectors.cases) {
      const got = verdict(() => verify(bytes(vector), vector.headers, vector.secrets, options));
      assert.equal(got, vector.expect, vector.name);
    }
    assert.ok(vectors.cases.length > 40);
  });

  test("headers may be those of node:http or of fetch", () => {
    const [vector] = vectors.cases;
    const plain = Object.fromEntries(vector.headers);
    for (const headers of [plain, new Headers(plain), new Map(vector.headers)]) {
      assert.equal(verify(bytes(vector), headers, vector.secrets[0], options), plain["webhook-id"]);
    }
    const twice = { ...plain, "webhook-id": [plain["webhook-id"], "other"] };
    assert.equal(verdict(() => verify(bytes(vector), twice, vector.secrets, options)), "malformed_header");
  });

  test("the clock of this machine is used unless another time is given", () => {
    const [vector] = vectors.cases;
    const got = verdict(() => verify(bytes(vector), vector.headers, vector.secrets));
    assert.ok(["stale", "future"].includes(got), got);
  });

  test("what is no secret is told without repeating it", () => {
    for (const text of ["", "whsec_", "not base64 at all!", Buffer.from("short").toString("base64")]) {
      assert.throws(
        () => verify("", {}, text),
        (error) => error instanceof TypeError && (text.length < 8 || !error.message.includes(text)),
      );
    }
  });
});
