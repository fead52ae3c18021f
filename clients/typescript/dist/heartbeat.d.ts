/**
 * Keeps the lease of one run while its handler works.
 *
 * Each run has a timer of its own: a call that hangs holds up nobody else's heartbeat. A renewal that fails is tried again soon, so
 * that several tries fit into what is left of the lease; one that is refused is the end, because somebody else has the run.
 */
import type { Run } from "./run.js";
/** Between two renewals: a third of the lease leaves room for two that fail. */
export declare function every(leaseMs: number): number;
/** Until the first renewal, when this much is left of the lease: at once for a claim that arrived late. Pure. */
export declare function firstAfter(leftMs: number, leaseMs: number, periodMs: number): number;
/** Begins when it is made; `stop` ends it, without waiting for a renewal that is under way. */
export declare class Heartbeat {
    #private;
    constructor(run: Run, everyMs?: number, told?: (text: string) => void);
    stop(): void;
}
