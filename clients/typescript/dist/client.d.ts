/**
 * `Quell`: one method for each call of the server that senders and workers need.
 *
 * Every method either returns what the server said or throws an error of `errors`; a lost answer is repeated (`transport`). The rest
 * of the interface, everything to see and to control, is there through `request`.
 */
import { Run } from "./run.js";
import { type Ending, type EventOptions, type Extended, type NewEvent, type Receipt, type Settlement, type Step } from "./shapes.js";
import { type Repeat } from "./transport.js";
/** The server answers a long poll after 55 s at the latest. */
export declare const WAIT_MAX_MS = 55000;
/** Runs that one claim may take. */
export declare const CLAIM_MAX = 100;
export interface QuellOptions {
    token?: string | undefined;
    /** For one answer; 30 s unless it is said. */
    timeoutMs?: number | undefined;
    /** So long a call is repeated while its answer is temporary or lost; 30 s unless it is said. */
    patienceMs?: number | undefined;
}
/** `traceparent` and `tracestate` travel with the event. */
export interface TraceHeaders {
    headers?: Readonly<Record<string, string>> | undefined;
}
export interface ClaimOptions {
    worker?: string | undefined;
    /** Runs at the most, each of another key; 1 unless it is said. */
    max?: number | undefined;
    waitMs?: number | undefined;
    /** In place of the queue's lease. */
    leaseMs?: number | undefined;
    tenant?: string | undefined;
    /** Repeated with the same one and the same worker, a claim returns what it got before. */
    claimId?: string | undefined;
    repeat?: Repeat | undefined;
}
/** A server. */
export declare class Quell {
    #private;
    constructor(url?: string, options?: QuellOptions);
    /**
     * Stores one event durably. A known `id` is answered with the first receipt; with another payload it is `Conflict`.
     *
     * Without an `id` one is made here, so that a lost answer can be asked for again.
     */
    append(queue: string, key: string, payload: unknown, options?: EventOptions & TraceHeaders): Promise<Receipt>;
    /** Stores events, all or none; at most 10,000 and 8 MiB. The receipts are in the order of the events. */
    appendMany(queue: string, events: Iterable<NewEvent>, options?: TraceHeaders): Promise<Receipt[]>;
    /**
     * Takes runs under a lease, each of another key, and waits for some. No queue means every queue that is pulled.
     *
     * Each run must be settled, or extended before its lease ends: `Worker` does both.
     */
    claim<P = any>(queues?: string | readonly string[], options?: ClaimOptions): Promise<Run<P>[]>;
    /** Keeps a lease, and tells what happened meanwhile. */
    extend(runId: string, token: number, options?: {
        leaseMs?: number | undefined;
        timeoutMs?: number | undefined;
        repeat?: Repeat | undefined;
    }): Promise<Extended>;
    /** The gate before an effect: `held`, or `superseded` or `interrupted`, which end the attempt. */
    hold(runId: string, token: number, options?: {
        ifHead?: number | undefined;
    }): Promise<"held" | "superseded" | "interrupted">;
    /** What is remembered of a piece of the run. */
    getStep(runId: string, token: number, name: string): Promise<Step>;
    /** Remembers the result of a piece of the run; the first one stays. */
    putStep(runId: string, token: number, name: string, value: unknown): Promise<Step>;
    /** Records the intent, before something is done that must not be done twice. */
    beginStep(runId: string, token: number, name: string): Promise<Step>;
    /** Ends an attempt. Repeated with the same token and outcome it gets the same answer. */
    settle(runId: string, token: number, ending: Ending["outcome"] | Ending, options?: {
        repeat?: Repeat | undefined;
    }): Promise<Settlement>;
    /** One run with its events, steps and history; with `waitMs`, when it has ended (55 s at the most). Look at its `state`. */
    run(runId: string, options?: {
        waitMs?: number | undefined;
    }): Promise<Record<string, any>>;
    /**
     * Any other call of the HTTP interface, such as `request("POST", "/v1/lanes/chat/ada/flush")`.
     *
     * Only `GET` is repeated when its answer is lost.
     */
    request(method: string, path: string, body?: unknown): Promise<any>;
}
/** One part of a path; a name of dots would change the path. */
export declare function part(text: string): string;
