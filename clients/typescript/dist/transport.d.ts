/**
 * One HTTP call, and the same call again when nobody knows what became of it.
 *
 * A call whose answer is lost is repeated as it was, byte for byte. That is safe because every call of this package carries what makes
 * it one: the id of an event, the `claim_id` of a claim, the token of a run. Connections are those of `fetch`, which keeps them open.
 * Redirects are not followed.
 */
import { QuellError } from "./errors.js";
import type { Wire } from "./shapes.js";
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
export declare function pauseBefore(number: number, problem: QuellError, chance: number): number;
/** Sleeps; true when the signal cut it short. */
export declare function sleep(ms: number, signal?: AbortSignal): Promise<boolean>;
/** The way to one server. */
export declare class Transport {
    #private;
    readonly timeoutMs: number;
    constructor(url: string, token: string | undefined, timeoutMs: number);
    /** The answer as JSON. */
    call(method: string, path: string, body: unknown, options: CallOptions): Promise<Wire>;
}
