/**
 * `Quell`: one method for each call of the server that senders and workers need.
 *
 * Every method either returns what the server said or throws an error of `errors`; a lost answer is repeated (`transport`). The rest
 * of the interface, everything to see and to control, is there through `request`.
 */
import { randomUUID } from "node:crypto";
import { QuellError } from "./errors.js";
import { Run } from "./run.js";
import { milliseconds, readBatch, readExtended, readReceipt, readSettlement, readStep, writeEnding, writeEvent, } from "./shapes.js";
import { Transport } from "./transport.js";
/** The server answers a long poll after 55 s at the latest. */
export const WAIT_MAX_MS = 55_000;
/** Runs that one claim may take. */
export const CLAIM_MAX = 100;
/** A server. */
export class Quell {
    #transport;
    #repeat;
    constructor(url = "http://127.0.0.1:7717", options = {}) {
        this.#transport = new Transport(url, options.token, options.timeoutMs ?? 30_000);
        this.#repeat = { patienceMs: options.patienceMs ?? 30_000 };
    }
    /**
     * Stores one event durably. A known `id` is answered with the first receipt; with another payload it is `Conflict`.
     *
     * Without an `id` one is made here, so that a lost answer can be asked for again.
     */
    async append(queue, key, payload, options = {}) {
        const { headers, ...event } = options;
        const [receipt] = await this.appendMany(queue, [{ ...event, key, payload }], { headers });
        return receipt;
    }
    /** Stores events, all or none; at most 10,000 and 8 MiB. The receipts are in the order of the events. */
    async appendMany(queue, events, options = {}) {
        const wire = Array.from(events, (event) => writeEvent(event, `evt_${randomUUID().replaceAll("-", "")}`));
        if (wire.length === 0)
            return [];
        const path = `/v1/queues/${part(queue)}/events`;
        // One event is sent as such, so that the place of a mistake reads as the caller wrote it.
        const body = wire.length === 1 ? wire[0] : wire;
        try {
            const answer = await this.#transport.call("POST", path, body, { repeat: this.#repeat, headers: options.headers });
            return answer.receipts.map(readReceipt);
        }
        catch (problem) {
            if (problem instanceof QuellError)
                problem.eventIds = wire.map((event) => event.id);
            throw problem;
        }
    }
    /**
     * Takes runs under a lease, each of another key, and waits for some. No queue means every queue that is pulled.
     *
     * Each run must be settled, or extended before its lease ends: `Worker` does both.
     */
    async claim(queues = [], options = {}) {
        const waitMs = milliseconds(options.waitMs ?? 0);
        const leaseMs = options.leaseMs === undefined ? undefined : milliseconds(options.leaseMs);
        const body = {
            queues: typeof queues === "string" ? [queues] : queues,
            worker: options.worker ?? "node",
            max: options.max ?? 1,
            wait_ms: waitMs,
            lease_ms: leaseMs,
            tenant: options.tenant,
            claim_id: options.claimId ?? randomUUID(),
        };
        const answer = await this.#transport.call("POST", "/v1/claims", body, {
            repeat: options.repeat ?? this.#repeat,
            timeoutMs: this.#transport.timeoutMs + Math.min(waitMs, WAIT_MAX_MS),
        });
        const [arrived, now] = [performance.now(), Date.parse(answer.now)];
        return answer.claims.map((wire) => {
            const batch = readBatch(wire);
            const until = batch.leaseUntil.getTime();
            // A claim that was repeated late has little left of its lease.
            const leaseEnd = arrived + (until - now);
            return new Run(this, batch, leaseMs ?? until - Date.parse(wire.claimed_at), leaseEnd);
        });
    }
    /** Keeps a lease, and tells what happened meanwhile. */
    async extend(runId, token, options = {}) {
        const body = { token, lease_ms: options.leaseMs === undefined ? undefined : milliseconds(options.leaseMs) };
        const { timeoutMs, repeat = this.#repeat } = options;
        return readExtended(await this.#transport.call("POST", `/v1/claims/${part(runId)}/extend`, body, { repeat, timeoutMs }));
    }
    /** The gate before an effect: `held`, or `superseded` or `interrupted`, which end the attempt. */
    async hold(runId, token, options = {}) {
        const body = { token, if_head: options.ifHead };
        const answer = await this.#transport.call("POST", `/v1/claims/${part(runId)}/hold`, body, { repeat: this.#repeat });
        return answer.answer;
    }
    /** What is remembered of a piece of the run. */
    async getStep(runId, token, name) {
        const path = `/v1/claims/${part(runId)}/steps/${part(name)}?token=${token}`;
        return readStep(await this.#transport.call("GET", path, undefined, { repeat: this.#repeat }));
    }
    /** Remembers the result of a piece of the run; the first one stays. */
    async putStep(runId, token, name, value) {
        const path = `/v1/claims/${part(runId)}/steps/${part(name)}`;
        // Nothing is a value, too, and JSON knows only one kind of it.
        const body = { token, value: value ?? null };
        return readStep(await this.#transport.call("PUT", path, body, { repeat: this.#repeat }));
    }
    /** Records the intent, before something is done that must not be done twice. */
    async beginStep(runId, token, name) {
        const path = `/v1/claims/${part(runId)}/steps/${part(name)}`;
        return readStep(await this.#transport.call("PUT", path, { token, begin: true }, { repeat: this.#repeat }));
    }
    /** Ends an attempt. Repeated with the same token and outcome it gets the same answer. */
    async settle(runId, token, ending, options = {}) {
        const body = writeEnding(token, typeof ending === "string" ? { outcome: ending } : ending);
        const { repeat = this.#repeat } = options;
        return readSettlement(await this.#transport.call("POST", `/v1/claims/${part(runId)}/settle`, body, { repeat }));
    }
    /** One run with its events, steps and history; with `waitMs`, when it has ended (55 s at the most). Look at its `state`. */
    async run(runId, options = {}) {
        const waitMs = milliseconds(options.waitMs ?? 0);
        const timeoutMs = this.#transport.timeoutMs + Math.min(waitMs, WAIT_MAX_MS);
        const path = `/v1/runs/${part(runId)}?wait_ms=${waitMs}`;
        return this.#transport.call("GET", path, undefined, { repeat: this.#repeat, timeoutMs });
    }
    /**
     * Any other call of the HTTP interface, such as `request("POST", "/v1/lanes/chat/ada/flush")`.
     *
     * Only `GET` is repeated when its answer is lost.
     */
    async request(method, path, body) {
        const repeatable = method.toUpperCase() === "GET";
        return this.#transport.call(method.toUpperCase(), path, body, { repeat: this.#repeat, repeatable });
    }
}
/** One part of a path; a name of dots would change the path. */
export function part(text) {
    const encoded = encodeURIComponent(text);
    return /^\.+$/.test(encoded) ? encoded.replaceAll(".", "%2E") : encoded;
}
