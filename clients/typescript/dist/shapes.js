/**
 * What goes over the wire, as types: events to send, receipts, batches, answers.
 *
 * Only reading and writing of JSON is here, all of it pure. Fields that a newer server adds are ignored, so an older client goes on
 * working. Durations are milliseconds and say so in their name; times are `Date`s.
 */
/** A duration as the wire has it. Never negative, and never NaN. */
export function milliseconds(duration) {
    if (!(duration >= 0 && Number.isFinite(duration))) {
        throw new RangeError(`a duration is 0 or more milliseconds, not ${duration}`);
    }
    return Math.round(duration);
}
/** An event as it is sent; `madeId` is for one without an id. */
export function writeEvent(event, madeId) {
    if (JSON.stringify(event.payload) === undefined)
        throw new TypeError("a payload is JSON; this one is nothing");
    return {
        key: event.key,
        payload: event.payload,
        id: event.id ?? madeId,
        tenant: event.tenant,
        source: event.source,
        priority: event.priority,
        delay_ms: event.delayMs === undefined ? undefined : milliseconds(event.delayMs),
        window: event.window === undefined ? undefined : writeWindow(event.window),
        only_if_idle: event.onlyIfIdle || undefined,
    };
}
function writeWindow(window) {
    if ("fixed" in window)
        return { fixed: { wait_ms: milliseconds(window.fixed.waitMs) } };
    if ("quiet" in window) {
        const { quietMs, maxWaitMs } = window.quiet;
        return { quiet: { quiet_ms: milliseconds(quietMs), max_wait_ms: milliseconds(maxWaitMs) } };
    }
    return { none: {} };
}
/** An ending as it is sent. What is not there is left out by JSON. */
export function writeEnding(token, ending) {
    const fault = ending.sourceFault;
    return {
        token,
        outcome: ending.outcome,
        error: ending.error,
        retry_after_ms: ending.retryAfterMs === undefined ? undefined : milliseconds(ending.retryAfterMs),
        result: ending.result ?? undefined,
        if_head: ending.ifHead,
        usage: ending.usage !== undefined && Object.keys(ending.usage).length > 0 ? ending.usage : undefined,
        source_fault: fault && { kind: fault.kind, retry_after_ms: fault.retryAfterMs },
        source_unused: ending.sourceUnused || undefined,
    };
}
export function readReceipt(wire) {
    return {
        eventId: wire.event_id,
        duplicate: wire.duplicate,
        seq: wire.seq ?? null,
        runId: wire.run_id ?? null,
        dueAt: readTime(wire.due_at),
        state: wire.state ?? null,
    };
}
/** The envelope of a claim, or the body of a push once it is proven. */
export function readBatch(wire) {
    return {
        runId: wire.run_id,
        queue: wire.queue,
        key: wire.key,
        tenant: wire.tenant,
        attempt: wire.attempt,
        maxAttempts: wire.max_attempts,
        token: wire.token,
        revision: wire.revision,
        firedBy: wire.fired_by,
        firstAt: new Date(wire.first_at),
        lastAt: new Date(wire.last_at),
        leaseUntil: new Date(wire.lease_until),
        headSeq: wire.head_seq,
        events: wire.events.map((event) => ({
            seq: event.seq,
            id: event.id,
            payload: event.payload,
            receivedAt: new Date(event.received_at),
            headers: event.headers ?? {},
            wasSeq: event.was_seq ?? null,
        })),
    };
}
export function readExtended(wire) {
    return {
        leaseUntil: new Date(wire.lease_until),
        headSeq: wire.head_seq,
        newer: wire.newer,
        interrupt: wire.interrupt,
        cancel: wire.cancel,
    };
}
export function readStep(wire) {
    return { state: wire.state, value: wire.value ?? null, stored: wire.stored };
}
export function readSettlement(wire) {
    return {
        runId: wire.run_id,
        state: wire.state,
        nextAt: readTime(wire.next_at),
        repeated: wire.repeated,
    };
}
function readTime(text) {
    return text === null || text === undefined ? null : new Date(text);
}
