/**
 * Keeps the lease of one run while its handler works.
 *
 * Each run has a timer of its own: a call that hangs holds up nobody else's heartbeat. A renewal that fails is tried again soon, so
 * that several tries fit into what is left of the lease; one that is refused is the end, because somebody else has the run.
 */
import { LeaseLost } from "./errors.js";
import { milliseconds } from "./shapes.js";
/** A sign of life is sent at least this often, whatever the lease: people look at it. */
const EVERY_MAX_MS = 20_000;
/** Answers of a healthy server take milliseconds; a shorter limit would make a slow one look dead. */
const TIMEOUT_MIN_MS = 1_000;
/** Between two renewals: a third of the lease leaves room for two that fail. */
export function every(leaseMs) {
    return Math.min(leaseMs / 3, EVERY_MAX_MS);
}
/** Until the first renewal, when this much is left of the lease: at once for a claim that arrived late. Pure. */
export function firstAfter(leftMs, leaseMs, periodMs) {
    return Math.max(0, Math.min(periodMs, leftMs - (leaseMs - periodMs)));
}
/** Begins when it is made; `stop` ends it, without waiting for a renewal that is under way. */
export class Heartbeat {
    #run;
    #periodMs;
    #told;
    #timer;
    #done = false;
    constructor(run, everyMs, told = () => { }) {
        this.#run = run;
        this.#periodMs = everyMs === undefined ? every(run.leaseMs) : milliseconds(everyMs);
        this.#told = told;
        this.#timer = this.#after(firstAfter(run.leftMs, run.leaseMs, this.#periodMs));
    }
    stop() {
        this.#done = true;
        clearTimeout(this.#timer);
    }
    #after(ms) {
        return setTimeout(() => void this.#beat(), ms);
    }
    async #beat() {
        const run = this.#run;
        let pause = this.#periodMs;
        try {
            await run.extend({ repeat: { patienceMs: 0 }, timeoutMs: Math.max(run.leaseMs / 3, TIMEOUT_MIN_MS) });
        }
        catch (problem) {
            if (problem instanceof LeaseLost) {
                if (run.lost !== null && !run.settled)
                    this.#told(problem.message);
                return;
            }
            pause = Math.min(run.leaseMs / 20, 1_000);
            if (!this.#done)
                this.#told(`the lease of ${run.runId} could not be renewed, again in ${pause} ms: ${String(problem)}`);
        }
        if (!this.#done)
            this.#timer = this.#after(pause);
    }
}
