/**
 * `Worker`: claims, keeps leases, calls a handler and settles, until it is told to stop.
 *
 * One long poll waits for work and takes as many runs as there is room for. The server hands out a key to one worker at a time, so order
 * per key needs nothing here.
 *
 * What is not known is never guessed: a claim whose answer is lost is repeated with its `claim_id`, a settlement with its token, until
 * the server has spoken. Stopped, a worker takes nothing more, gives its handlers time, and hands back what still runs; the server
 * refunds those attempts.
 */
import { type Quell } from "./client.js";
import type { Run } from "./run.js";
export type Handler<P = any> = (run: Run<P>) => unknown;
export interface WorkerOptions {
    /** Runs at once, each of another key; 1 unless it is said. */
    concurrency?: number | undefined;
    /** In place of the queue's lease. */
    leaseMs?: number | undefined;
    /** How long one poll waits for something to do; 30 s unless it is said. */
    waitMs?: number | undefined;
    tenant?: string | undefined;
    /** Shown to people. */
    name?: string | undefined;
    /** In place of a third of the lease; as often a run learns that it is interrupted. */
    heartbeatMs?: number | undefined;
    /** For handlers when the worker stops; 25 s unless it is said. */
    graceMs?: number | undefined;
    /** What an error that is not `Retry`, `Failed` or `Release` means; "retry" unless it is said. */
    onError?: "retry" | "failed" | undefined;
    /** Told of what went wrong, in words for people; `console.warn` unless it is said. */
    log?: ((text: string, error?: unknown) => void) | undefined;
}
/**
 * Works on queues that have `handler = "pull"`.
 *
 * `run()` works until SIGTERM or SIGINT; `start()` and `stop()` are for those who listen to signals themselves.
 */
export declare class Worker<P = any> {
    #private;
    readonly name: string;
    constructor(quell: Quell, queues: string | readonly string[], handler: Handler<P>, options?: WorkerOptions);
    /** Works until SIGTERM or SIGINT (a second one hands everything back at once), then stops. Throws what ended the loop. */
    run(): Promise<void>;
    /** Begins to work. */
    start(): void;
    /** Takes nothing more from here on, and lets handlers know; does not wait. A handler may call it. */
    requestStop(): void;
    /** Takes nothing more, waits for handlers, hands back what still runs. Throws what had ended the loop, if it failed. */
    stop(options?: {
        graceMs?: number | undefined;
    }): Promise<void>;
}
