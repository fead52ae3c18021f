/**
 * What a handler may answer, and what becomes of it.
 *
 * A handler that returns has succeeded, and what it returns is the run's result; `Succeeded` says more. It throws `Retry`, `Failed` or
 * `Release` to say otherwise. Any other error is unclassified, and the worker's `onError` decides. All of it is pure.
 */

import { Interrupted, LeaseLost, QuellError, StepUnknown, Superseded } from "./errors.js";
import type { Ending } from "./shapes.js";

/** The server keeps the last 4 KiB of an error; more is not worth sending. */
const ERROR_CHARACTERS = 4096;

/** Try the run again: after this long, or by the queue's backoff. */
export class Retry extends Error {
  readonly afterMs: number | undefined;

  constructor(error = "", options: { afterMs?: number | undefined } = {}) {
    super(error);
    this.name = "Retry";
    this.afterMs = options.afterMs;
  }
}

/** This can never work: the events go to the dead letter. */
export class Failed extends Error {
  constructor(error = "") {
    super(error);
    this.name = "Failed";
  }
}

/** Hand the run back as if it had not been claimed: no attempt is lost. */
export class Release extends Error {
  constructor(error = "") {
    super(error);
    this.name = "Release";
  }
}

/** An answer with more than a result: with `ifHead` it succeeds only if nothing newer than that has arrived. */
export class Succeeded {
  readonly ifHead: number | undefined;

  constructor(
    readonly result: unknown = undefined,
    options: { ifHead?: number | undefined } = {},
  ) {
    this.ifHead = options.ifHead;
  }
}

/** What is settled for what a handler returned. */
export function endingOfAnswer(answer: unknown): Ending {
  if (answer instanceof Succeeded) return { outcome: "succeeded", result: answer.result, ifHead: answer.ifHead };
  return { outcome: "succeeded", result: answer };
}

/** What a run's heartbeats were told, and what its worker makes of unclassified errors. */
export interface Circumstances {
  interrupted: boolean;
  cancelled: boolean;
  onError: "retry" | "failed";
}

/** What is settled for what a handler threw. */
export function endingOfError(error: unknown, { interrupted, cancelled, onError }: Circumstances): Ending {
  const said = error instanceof Error ? error.message || undefined : undefined;
  if (error instanceof Retry) return { outcome: "retry", error: said, retryAfterMs: error.afterMs };
  if (error instanceof Failed) return { outcome: "failed", error: said };
  if (error instanceof Release) return { outcome: "release", error: said };
  const text = String(error).slice(-ERROR_CHARACTERS);
  // Only a handler that throws it by itself: the gate has ended its attempt already.
  if (error instanceof Superseded) return { outcome: "superseded", error: text };
  // Any end but success is the cancellation; the server makes it one.
  if (cancelled) return { outcome: "release", error: "an operator cancelled it" };
  // Its work was not wanted any more, so what it stumbled over does not count.
  if (interrupted || error instanceof Interrupted) return { outcome: "interrupted" };
  if (error instanceof LeaseLost) return { outcome: "release", error: text };
  if (error instanceof StepUnknown) return { outcome: "failed", error: text };
  // The server was away: that says nothing about the work.
  if (error instanceof QuellError && error.temporary) return { outcome: "retry", error: text };
  return { outcome: onError, error: text };
}
