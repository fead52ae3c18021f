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
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { CLAIM_MAX, WAIT_MAX_MS } from "./client.js";
import { ApiError, CallCancelled, GaveWay, LeaseLost, QuellError, Superseded } from "./errors.js";
import { Failed, Release, Retry, endingOfAnswer, endingOfError } from "./outcome.js";
import { milliseconds } from "./shapes.js";
import { sleep } from "./transport.js";
/** The server remembers the answer to a settlement for an hour at least; after that repeating it could only be refused. */
const SETTLE_PATIENCE_MS = 3_600_000;
/** What is handed back at a stop is handed back in moments, or its lease has to do. */
const HAND_BACK_PATIENCE_MS = 3_000;
/** An empty answer that comes at once is that of a server that is stopping. */
const EMPTY_PAUSE_MS = 1_000;
/**
 * Works on queues that have `handler = "pull"`.
 *
 * `run()` works until SIGTERM or SIGINT; `start()` and `stop()` are for those who listen to signals themselves.
 */
export class Worker {
    name;
    #quell;
    #queues;
    #handler;
    #concurrency;
    #waitMs;
    #graceMs;
    #onError;
    #options;
    #log;
    #poll = new AbortController();
    #settling = new AbortController();
    #hurry = new AbortController();
    #running = new Map();
    #loop = null;
    /** Wakes the loop when it waits for room. */
    #changed = () => { };
    #failure = null;
    constructor(quell, queues, handler, options = {}) {
        this.#quell = quell;
        this.#queues = typeof queues === "string" ? [queues] : queues;
        this.#handler = handler;
        this.#options = options;
        this.#concurrency = options.concurrency ?? 1;
        if (!(this.#concurrency >= 1))
            throw new RangeError("a worker does at least one run at once");
        this.#onError = options.onError ?? "retry";
        if (this.#onError !== "retry" && this.#onError !== "failed") {
            throw new RangeError(`onError is "retry" or "failed", not ${JSON.stringify(options.onError)}`);
        }
        this.#waitMs = Math.min(milliseconds(options.waitMs ?? 30_000), WAIT_MAX_MS);
        this.#graceMs = milliseconds(options.graceMs ?? 25_000);
        this.#log = options.log ?? ((text, error) => (error === undefined ? console.warn(text) : console.warn(text, error)));
        // New at every start: a worker that comes back is another one.
        this.name = options.name ?? `${hostname().slice(0, 64)}:${process.pid}:${randomBytes(3).toString("hex")}`;
    }
    /** Works until SIGTERM or SIGINT (a second one hands everything back at once), then stops. Throws what ended the loop. */
    async run() {
        let heard = 0;
        const asked = new AbortController();
        const hear = () => {
            heard += 1;
            asked.abort();
            if (heard > 1)
                this.#hurry.abort();
        };
        const signals = ["SIGTERM", "SIGINT"];
        for (const name of signals)
            process.on(name, hear);
        try {
            this.start();
            await Promise.race([this.#loop, aborted(asked.signal)]);
            await this.stop();
        }
        finally {
            for (const name of signals)
                process.off(name, hear);
        }
    }
    /** Begins to work. */
    start() {
        if (this.#loop !== null)
            throw new Error("a worker is started once");
        this.#loop = this.#claimLoop();
    }
    /** Takes nothing more from here on, and lets handlers know; does not wait. A handler may call it. */
    requestStop() {
        this.#poll.abort();
        this.#changed();
    }
    /** Takes nothing more, waits for handlers, hands back what still runs. Throws what had ended the loop, if it failed. */
    async stop(options = {}) {
        this.requestStop();
        const graceMs = options.graceMs === undefined ? this.#graceMs : milliseconds(options.graceMs);
        const over = new AbortController();
        const grace = Promise.race([sleep(graceMs, over.signal), aborted(this.#hurry.signal)]);
        await Promise.race([this.#loop, sleep(HAND_BACK_PATIENCE_MS, over.signal)]);
        this.#tellHandlers();
        await Promise.race([Promise.all(this.#running.values()), grace]);
        over.abort();
        await this.#handBack([...this.#running.keys()]);
        // Settlements that could not be delivered are given up: their runs come back after their lease.
        this.#settling.abort();
        if (this.#failure !== null)
            throw this.#failure.error;
    }
    async #claimLoop() {
        try {
            while (!this.#poll.signal.aborted) {
                const room = this.#concurrency - this.#running.size;
                if (room <= 0) {
                    await new Promise((resolve) => (this.#changed = resolve));
                    continue;
                }
                const asked = performance.now();
                const runs = await this.#claim(Math.min(room, CLAIM_MAX));
                for (const run of runs)
                    await this.#dispatch(run);
                if (runs.length === 0 && performance.now() - asked < Math.min(this.#waitMs, EMPTY_PAUSE_MS) / 2) {
                    await sleep(EMPTY_PAUSE_MS, this.#poll.signal);
                }
            }
        }
        catch (error) {
            if (!(error instanceof CallCancelled))
                this.#failure = { error };
        }
        // Only now: what a handler hands back would otherwise be taken by the last claim.
        this.#tellHandlers();
    }
    #tellHandlers() {
        for (const run of this.#running.keys())
            run.stop();
    }
    async #claim(room) {
        const { leaseMs, tenant } = this.#options;
        const wish = { worker: this.name, claimId: randomBytes(16).toString("hex"), leaseMs, tenant };
        const told = (problem, pauseMs) => this.#log(`claiming again in ${Math.round(pauseMs)} ms: ${problem.message}`);
        const repeat = { patienceMs: Infinity, signal: this.#poll.signal, told };
        try {
            return await this.#quell.claim(this.#queues, { ...wish, max: room, waitMs: this.#waitMs, repeat });
        }
        catch (problem) {
            if (problem instanceof CallCancelled) {
                // The server may have handed something out in this moment; whoever named its claim has to give it back.
                const last = { ...wish, max: 1, waitMs: 0, repeat: { patienceMs: HAND_BACK_PATIENCE_MS } };
                try {
                    await this.#handBack(await this.#quell.claim(this.#queues, last));
                }
                catch (error) {
                    this.#log(`nobody knows whether a last claim got something; if so, its lease has to do: ${String(error)}`);
                }
            }
            throw problem;
        }
    }
    async #dispatch(run) {
        if (this.#poll.signal.aborted)
            return this.#handBack([run]);
        // Entered before it begins: a handler may end at once.
        const work = Promise.resolve().then(() => this.#work(run));
        const entered = work.finally(() => {
            this.#running.delete(run);
            this.#changed();
        });
        this.#running.set(run, entered);
    }
    async #work(run) {
        if (run.leftMs < run.leaseMs / 2 && !(await this.#renewed(run)))
            return;
        const heartbeat = run.kept(this.#options.heartbeatMs, (text) => this.#log(text));
        try {
            const ending = await this.#handle(run);
            if (run.lost !== null)
                this.#log(`what was done for ${run.runId} counts for nothing: ${run.lost}`);
            else if (!run.over)
                await this.#settle(run, ending);
        }
        finally {
            heartbeat.stop();
        }
    }
    /** Renews a lease that arrived late, before its handler starts. False when somebody else has the run. */
    async #renewed(run) {
        try {
            await run.extend({ repeat: { patienceMs: 0 } });
        }
        catch (problem) {
            this.#log(`the lease of ${run.runId} could not be renewed: ${String(problem)}`);
            return !(problem instanceof LeaseLost);
        }
        return true;
    }
    async #handle(run) {
        let ending;
        try {
            ending = endingOfAnswer(await this.#handler(run));
        }
        catch (error) {
            const { interruptAsked: interrupted, cancelled } = run;
            ending = endingOfError(error, { interrupted, cancelled, onError: this.#onError });
            if (!run.over)
                this.#tellEnd(run, ending, error);
        }
        const { usage, sourceFault, sourceUnused } = run;
        return { ...ending, usage, sourceFault, sourceUnused };
    }
    /** What the handler said on purpose is a line, and giving way is not even that; what it did not say on purpose comes with its trace. */
    #tellEnd(run, ending, error) {
        if (error instanceof GaveWay)
            return;
        const meant = error instanceof Retry || error instanceof Failed || error instanceof Release;
        const where = `${run.runId} of ${run.queue}/${run.key}, attempt ${run.attempt}`;
        this.#log(`${where}: ${ending.outcome}: ${ending.error ?? "no reason given"}`, meant ? undefined : error);
    }
    async #settle(run, ending) {
        const told = (problem, pauseMs) => this.#log(`settling ${run.runId} again in ${Math.round(pauseMs)} ms: ${problem.message}`);
        const repeat = { patienceMs: SETTLE_PATIENCE_MS, signal: this.#settling.signal, told };
        try {
            await run.settle(ending, { repeat });
        }
        catch (problem) {
            if (problem instanceof Superseded)
                return;
            if (problem instanceof LeaseLost) {
                this.#log(`what was done for ${run.runId} counts for nothing: ${problem.message}`);
            }
            else if (problem instanceof ApiError || !(problem instanceof QuellError)) {
                // A result that is no JSON or too large, say. It was not settled, and the work would end so each time.
                const refusal = `the outcome \`${ending.outcome}\` was refused: ${String(problem)}`;
                this.#log(`${run.runId}: ${refusal}`);
                run.refused(ending);
                const bare = ending.outcome === "failed" && ending.usage === undefined;
                if (!bare)
                    await this.#settle(run, { outcome: "failed", error: refusal });
            }
            else {
                this.#log(`${run.runId} could not be settled and waits for its lease: ${problem.message}`);
            }
        }
    }
    async #handBack(runs) {
        const one = async (run) => {
            const ending = { outcome: "release", error: "the worker is stopping" };
            if (!run.decide(ending))
                return; // It ended in this moment.
            run.abandon();
            try {
                await run.settle(ending, { repeat: { patienceMs: HAND_BACK_PATIENCE_MS } });
            }
            catch (problem) {
                if (problem instanceof LeaseLost)
                    return;
                this.#log(`${run.runId} could not be handed back and waits for its lease: ${String(problem)}`);
            }
        };
        await Promise.all(runs.map(one));
    }
}
function aborted(signal) {
    return new Promise((resolve) => {
        if (signal.aborted)
            resolve();
        else
            signal.addEventListener("abort", () => resolve(), { once: true });
    });
}
