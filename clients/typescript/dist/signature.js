/**
 * Whether a pushed batch is really from Quell: the signature of Standard Webhooks 1.0, as the server itself checks it.
 *
 * Signed is `id.timestamp.body` with HMAC-SHA256; the secret is `whsec_` and base64. The bytes count as they came: check them before
 * anything is parsed. All pairs of secrets and signatures are compared, each in constant time, so the time it takes tells nothing; the
 * proof comes before the time, so a stranger learns nothing of this machine's clock.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import { SignatureError } from "./errors.js";
/** Each costs a comparison; a sender that changes its secret needs two. */
const SIGNATURES_MAX = 16;
/** As long as the id of an event may be. */
const ID_CHARACTERS_MAX = 256;
/**
 * Throws a `SignatureError` unless one of the secrets has signed these bytes not longer ago than the tolerance.
 *
 * Answers with the `webhook-id`. It stays the same when a batch is sent again: keep it with the effect.
 */
export function verify(body, headers, secret, options = {}) {
    const keys = (typeof secret === "string" ? [secret] : secret).map(readKey);
    const given = header(headers, "webhook-signature", "signature");
    const id = header(headers, "webhook-id", "header");
    const timestamp = header(headers, "webhook-timestamp", "header");
    // A dot would let the signed text be taken apart in another place.
    if (id.length > ID_CHARACTERS_MAX || !/^[!-~]*$/.test(id) || id.includes(".")) {
        throw new SignatureError("malformed_header", `webhook-id is 1 to ${ID_CHARACTERS_MAX} visible characters and no dot`);
    }
    const entries = given.split(" ").filter((entry) => entry.startsWith("v1,"));
    const read = entries.slice(0, SIGNATURES_MAX).map((entry) => fromBase64(entry.slice(3)));
    const signatures = read.filter((bytes) => bytes !== null);
    if (signatures.length === 0) {
        throw new SignatureError("malformed_signature", "webhook-signature has no signature of version v1 that can be read");
    }
    const rights = keys.map((key) => createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest());
    // Not `some`: nothing is left out because an earlier pair was right.
    const found = rights.flatMap((right) => signatures.map((one) => one.length === right.length && timingSafeEqual(one, right)));
    if (!found.includes(true)) {
        throw new SignatureError("bad_signature", "the signature is not that of these bytes with our secret");
    }
    checkTime(timestamp, options.now ?? Date.now(), options.toleranceMs ?? 300_000);
    return id;
}
function checkTime(timestamp, nowMs, toleranceMs) {
    if (!/^\d{1,15}$/.test(timestamp)) {
        throw new SignatureError("malformed_header", "the time in webhook-timestamp is not a number of seconds");
    }
    const [age, tolerance] = [Math.floor(nowMs / 1000) - Number(timestamp), Math.floor(toleranceMs / 1000)];
    if (age > tolerance) {
        throw new SignatureError("stale", `it was sent ${age} s ago, and ${tolerance} s are allowed`);
    }
    if (age < -tolerance) {
        const detail = `it says it was sent ${-age} s in the future, and ${tolerance} s are allowed: is this machine's clock right?`;
        throw new SignatureError("future", detail);
    }
}
/** The bytes of a secret. The text itself is never told. */
function readKey(text) {
    const key = fromBase64(text.trim().replace(/^whsec_/, ""));
    if (key === null)
        throw new TypeError("a secret is whsec_ and base64: `openssl rand -base64 32` makes one");
    if (key.length < 24 || key.length > 64) {
        throw new TypeError(`a secret is base64 of 24 to 64 bytes; this one has ${key.length}`);
    }
    return key;
}
/** With or without its padding, and nothing but base64: senders differ. */
function fromBase64(text) {
    const bare = text.replace(/=+$/, "");
    const padding = text.length - bare.length;
    if (padding !== 0 && padding !== (4 - (bare.length % 4)) % 4)
        return null;
    // `Buffer` skips what it does not know, so the way back must give the same text: also for bits beyond the last byte.
    const bytes = Buffer.from(bare, "base64");
    return bytes.toString("base64").replace(/=+$/, "") === bare ? bytes : null;
}
/** A header that must be there once. Twice is a trick: two readers may take two of them for the one. */
function header(headers, name, kind) {
    const pairs = Symbol.iterator in headers ? headers : Object.entries(headers);
    const values = [];
    for (const [key, value] of pairs) {
        if (key.toLowerCase() === name && value !== undefined)
            values.push(...(typeof value === "string" ? [value] : value));
    }
    if (!values[0])
        throw new SignatureError(`missing_${kind}`, `the header ${name} is missing or empty`);
    if (values.length > 1)
        throw new SignatureError(`malformed_${kind}`, `the header ${name} is there twice`);
    return values[0].trim();
}
