/**
 * `Run`: one batch under one lease, as a handler sees it.
 *
 * A run knows what its heartbeats were told. Nothing here can stop a handler: it can look (`interrupted`, `stopping`), give `signal` to
 * whatever it waits for, wait (`wait`) or have an error thrown (`check`), and each step and the gate look by themselves. What keeps a
 * late handler from doing harm is the token, which the server compares at every call.
 */
import type { Quell } from "./client.js";
import { Heartbeat } from "./heartbeat.js";
import type { Batch, Ending, Event, Extended, Settlement, SourceFault } from "./shapes.js";
import { type Repeat } from "./transport.js";
/** How long before the end of a lease it is unsure: a reserve for clocks that run at different rates. Pure. */
export declare function margin(leaseMs: number): number;
/** All events of one run, and what its handler can ask of it. `P` is the type of a payload. */
export declare class Run<P = any> {
    #private;
    readonly batch: Batch<P>;
    readonly leaseMs: number;
    readonly runId: string;
    readonly queue: string;
    readonly key: string;
    /** Empty for those who have none. */
    readonly tenant: string;
    /** In order; at least one. */
    readonly events: readonly Event<P>[];
    /** 1 for the first claim; crashes count, refunded hand-backs do not. */
    readonly attempt: number;
    readonly maxAttempts: number;
    /** Larger for every later claim of the key: pass it on, so that a stale worker's effects can be told apart. */
    readonly token: number;
    /** Raised by every merge with newer events: the same run with another batch. */
    readonly revision: number;
    readonly firedBy: string;
    readonly headSeq: number;
    /** Named numbers that are reported with the end of the run, such as `run.usage.tokens = 512`. */
    usage: Record<string, number>;
    /** Set it when the run's source is to blame. */
    sourceFault: SourceFault | undefined;
    /** Set it when no request was made to the run's source. */
    sourceUnused: boolean;
    /** `leaseEnd` is a moment of `performance.now()`. */
    constructor(quell: Quell, batch: Batch<P>, leaseMs: number, leaseEnd: number);
    get isLastAttempt(): boolean;
    /** Events that wait for the next run, as the last heartbeat has told. */
    get newer(): number;
    /** The work is not wanted any more: newer events interrupted it, an operator cancelled it, or its lease is lost or unsure. */
    get interrupted(): boolean;
    /** Newer events want to be part of the batch. */
    get interruptAsked(): boolean;
    /** An operator wants it to stop. */
    get cancelled(): boolean;
    /** The worker is being stopped: end soon, or throw `Release` to hand the run back. */
    get stopping(): boolean;
    /** Aborted when the work is not wanted any more, or was handed back: for `fetch` and all that takes a signal. */
    get signal(): AbortSignal;
    /** Sleeps, but not longer than the run is wanted. True when the handler should come to an end. */
    wait(ms: number): Promise<boolean>;
    /** Throws when the work is not wanted any more; a handler lets that pass, and the worker does the rest. */
    check(): void;
    /**
     * The gate before an effect that cannot be taken back: from here on the batch stays as it is.
     *
     * Throws `Superseded` when newer events have arrived since the claim, and `Interrupted` when somebody wants the run to stop. Then the
     * attempt is over and refunded: let the error pass. `anyway` does not ask for newer events.
     */
    hold(options?: {
        anyway?: boolean | undefined;
    }): Promise<void>;
    /**
     * Does the work and remembers its result, or gives back the result that an earlier attempt of this batch has stored.
     *
     * The result is JSON, up to 256 KiB, and comes back as JSON does. An error of the work is not remembered.
     */
    step<T>(name: string, work: () => T | Promise<T>): Promise<T>;
    /**
     * Does work that must not be repeated: the intent is recorded before it begins.
     *
     * Throws `StepUnknown` when an earlier attempt recorded the intent and no result: nobody here knows whether it happened, and the
     * handler decides. A handler that lets it pass has failed, so a person looks at it.
     */
    stepOnce<T>(name: string, work: () => T | Promise<T>): Promise<T>;
    /** The same text in every attempt of this batch: an idempotency key for whoever is asked to do the step. */
    stepKey(name: string): string;
    /** Keeps the lease. `Worker` and `kept` call it every third of the lease. */
    extend(options?: {
        repeat?: Repeat | undefined;
        timeoutMs?: number | undefined;
    }): Promise<Extended>;
    /** Keeps the lease until `stop` of what it returns is called, or nothing may be settled any more. */
    kept(everyMs?: number, told?: (text: string) => void): Heartbeat;
    /** Ends the attempt; for those who claim by themselves. The first ending is the only one: others are refused here. */
    settle(ending: Ending["outcome"] | Ending, options?: {
        repeat?: Repeat | undefined;
    }): Promise<Settlement>;
    /** For how long the lease is sure by this machine's clock; negative when it is not. */
    get leftMs(): number;
    /** An ending was decided on. */
    get settled(): boolean;
    /** Nothing may be settled any more: it gave way at the gate, was lost, or an ending was decided on. */
    get over(): boolean;
    /** Why the run is not this worker's any more, if it is not. */
    get lost(): string | null;
    /** Fixes what will be settled. Only one ending is ever sent for a token. @internal */
    decide(ending: Ending): boolean;
    /** The server did not take this ending, so another one may be decided on. @internal */
    refused(ending: Ending): void;
    /** The worker is being stopped. @internal */
    stop(): void;
    /** It was handed back or gave way while its handler works: there is no lease to keep. @internal */
    abandon(): void;
}
