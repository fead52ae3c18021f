/**
 * What a handler may answer, and what becomes of it.
 *
 * A handler that returns has succeeded, and what it returns is the run's result; `Succeeded` says more. It throws `Retry`, `Failed` or
 * `Release` to say otherwise. Any other error is unclassified, and the worker's `onError` decides. All of it is pure.
 */
import type { Ending } from "./shapes.js";
/** Try the run again: after this long, or by the queue's backoff. */
export declare class Retry extends Error {
    readonly afterMs: number | undefined;
    constructor(error?: string, options?: {
        afterMs?: number | undefined;
    });
}
/** This can never work: the events go to the dead letter. */
export declare class Failed extends Error {
    constructor(error?: string);
}
/** Hand the run back as if it had not been claimed: no attempt is lost. */
export declare class Release extends Error {
    constructor(error?: string);
}
/** An answer with more than a result: with `ifHead` it succeeds only if nothing newer than that has arrived. */
export declare class Succeeded {
    readonly result: unknown;
    readonly ifHead: number | undefined;
    constructor(result?: unknown, options?: {
        ifHead?: number | undefined;
    });
}
/** What is settled for what a handler returned. */
export declare function endingOfAnswer(answer: unknown): Ending;
/** What a run's heartbeats were told, and what its worker makes of unclassified errors. */
export interface Circumstances {
    interrupted: boolean;
    cancelled: boolean;
    onError: "retry" | "failed";
}
/** What is settled for what a handler threw. */
export declare function endingOfError(error: unknown, { interrupted, cancelled, onError }: Circumstances): Ending;
