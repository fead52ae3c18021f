/**
 * One HTTP call, and the same call again when nobody knows what became of it.
 *
 * A call whose answer is lost is repeated as it was, byte for byte. That is safe because every call of this package carries what makes
 * it one: the id of an event, the `claim_id` of a claim, the token of a run. Connections are those of `fetch`, which keeps them open.
 * Redirects are not followed.
 */

import { CallCancelled, ConnectionFailed, QuellError, ServerError, readProblem } from "./errors.js";
import type { Wire } from "./shapes.js";

const USER_AGENT = "quell-client-typescript/0.1";
/** Pauses before a repeat: they double from the first to the last. */
const PAUSE_FIRST_MS = 100;
const PAUSE_LAST_MS = 5_000;

/** How long a call is repeated while its answer is temporary or lost. */
export interface Repeat {
  /** `Infinity` means until it is cancelled. */
  patienceMs: number;
  /** Cuts the call short, also while it waits for an answer. */
  signal?: AbortSignal | undefined;
  /** Told of every failure that is followed by a repeat, with the pause before it. */
  told?: ((problem: QuellError, pauseMs: number) => void) | undefined;
}

export interface CallOptions {
  repeat: Repeat;
  headers?: Readonly<Record<string, string>> | undefined;
  timeoutMs?: number | undefined;
  /** A call that is not repeatable is sent once. */
  repeatable?: boolean | undefined;
}

/** The pause before the repeat with this number, from 0; `chance` is drawn from [0, 1). Pure. */
export function pauseBefore(number: number, problem: QuellError, chance: number): number {
  const doubled = Math.min(PAUSE_FIRST_MS * 2 ** Math.min(number, 16), PAUSE_LAST_MS);
  // Half of it by chance, so that clients who failed together do not come back together.
  const pause = doubled * (0.5 + chance / 2);
  const asked = (problem as { retryAfterMs?: number | null }).retryAfterMs ?? 0;
  return Math.max(pause, asked);
}

/** Sleeps; true when the signal cut it short. */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve(true);
    const done = (cut: boolean): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      resolve(cut);
    };
    const onAbort = (): void => done(true);
    const timer = setTimeout(() => done(false), ms);
    signal?.addEventListener("abort", onAbort);
  });
}

/** The way to one server. */
export class Transport {
  readonly #base: string;
  readonly #origin: string;
  readonly #headers: Record<string, string>;

  constructor(
    url: string,
    token: string | undefined,
    readonly timeoutMs: number,
  ) {
    const parsed = tryUrl(url);
    if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.search !== "" || parsed.hash !== "") {
      const shown = url.includes("@") ? "" : `, not ${JSON.stringify(url)}`;
      throw new TypeError(`a server's address looks like http://127.0.0.1:7717${shown}`);
    }
    if (parsed.username !== "" || parsed.password !== "") {
      throw new TypeError("a token is given as `token`, not inside the address");
    }
    this.#origin = parsed.origin;
    this.#base = parsed.origin + parsed.pathname.replace(/\/+$/, "");
    this.#headers = { "User-Agent": USER_AGENT, Accept: "application/json, application/problem+json" };
    if (token !== undefined) {
      // `fetch` would refuse it at every call, in words that do not say why.
      if (!/^[!-~]+$/.test(token.trim())) throw new TypeError("a token is visible characters without spaces");
      this.#headers["Authorization"] = `Bearer ${token.trim()}`;
    }
  }

  /** The answer as JSON. */
  async call(method: string, path: string, body: unknown, options: CallOptions): Promise<Wire> {
    const { repeat, repeatable = true } = options;
    const headers: Record<string, string> = { ...this.#headers, ...options.headers };
    const request: RequestInit = { method, headers, redirect: "manual" };
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(body);
    }
    const started = performance.now();
    for (let number = 0; ; number += 1) {
      try {
        return await this.#once(path, request, options.timeoutMs ?? this.timeoutMs, repeat.signal);
      } catch (problem) {
        if (!(problem instanceof QuellError)) throw problem;
        const pause = pauseBefore(number, problem, Math.random());
        const over = performance.now() - started + pause > repeat.patienceMs;
        if (!problem.temporary || !repeatable || over) throw problem;
        repeat.told?.(problem, pause);
        if (await sleep(pause, repeat.signal)) throw new CallCancelled("the call was cancelled before it was repeated");
      }
    }
  }

  async #once(path: string, request: RequestInit, timeoutMs: number, cancel: AbortSignal | undefined): Promise<Wire> {
    // Node 18 has no `AbortSignal.any`.
    const abort = new AbortController();
    const onCancel = (): void => abort.abort();
    const timer = setTimeout(() => abort.abort(), timeoutMs);
    cancel?.addEventListener("abort", onCancel);
    if (cancel?.aborted) abort.abort();
    let response: Response;
    let text: string;
    try {
      response = await fetch(this.#base + path, { ...request, signal: abort.signal });
      text = await response.text();
    } catch (error) {
      if (cancel?.aborted) throw new CallCancelled("the call was cancelled", { cause: error });
      const why = abort.signal.aborted ? "it took too long" : worded(error);
      throw new ConnectionFailed(`no answer from ${this.#origin}: ${why}`, { cause: error });
    } finally {
      clearTimeout(timer);
      cancel?.removeEventListener("abort", onCancel);
    }
    if (!response.ok) throw readProblem(response.status, response.headers.get("retry-after"), text);
    if (text === "") return null;
    try {
      return JSON.parse(text);
    } catch {
      const detail = `the answer of ${this.#origin} is no JSON: is this the address of a Quell server?`;
      throw new ServerError(response.status, "no-json", detail);
    }
  }
}

function tryUrl(url: string): URL | null {
  try {
    return new URL(url);
  } catch {
    return null;
  }
}

function worded(error: unknown): string {
  const cause = (error as { cause?: { code?: string; message?: string } }).cause;
  if (cause?.code === "ECONNREFUSED") return "nobody listens there; is `quell serve` running?";
  return cause?.message || cause?.code || (error instanceof Error ? error.message : String(error));
}
