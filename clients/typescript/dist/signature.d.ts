/**
 * Whether a pushed batch is really from Quell: the signature of Standard Webhooks 1.0, as the server itself checks it.
 *
 * Signed is `id.timestamp.body` with HMAC-SHA256; the secret is `whsec_` and base64. The bytes count as they came: check them before
 * anything is parsed. All pairs of secrets and signatures are compared, each in constant time, so the time it takes tells nothing; the
 * proof comes before the time, so a stranger learns nothing of this machine's clock.
 */
/** The headers of `node:http`, a `Headers`, or pairs. */
export type HeaderSource = Iterable<readonly [string, string]> | Readonly<Record<string, string | readonly string[] | undefined>>;
export interface VerifyOptions {
    /** How far the signed time may be off; five minutes unless it is said. */
    toleranceMs?: number | undefined;
    /** In place of `Date.now()`. */
    now?: number | undefined;
}
/**
 * Throws a `SignatureError` unless one of the secrets has signed these bytes not longer ago than the tolerance.
 *
 * Answers with the `webhook-id`. It stays the same when a batch is sent again: keep it with the effect.
 */
export declare function verify(body: Uint8Array | string, headers: HeaderSource, secret: string | readonly string[], options?: VerifyOptions): string;
