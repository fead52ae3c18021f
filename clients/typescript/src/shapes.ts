/**
 * What goes over the wire, as types: events to send, receipts, batches, answers.
 *
 * Only reading and writing of JSON is here, all of it pure. Fields that a newer server adds are ignored, so an older client goes on
 * working. Durations are milliseconds and say so in their name; times are `Date`s.
 */

// JSON as it came. The shape is the server's promise, so it is read without further checks.
export type Wire = any;

/** When a lane is due, in place of its queue's setting. */
export type Window =
  | { none: Record<string, never> }
  | { fixed: { waitMs: number } }
  | { quiet: { quietMs: number; maxWaitMs: number } };

/** What an event may say besides its key and payload. */
export interface EventOptions {
  /** Sent twice, it is stored once. Without one an id is made, so that sending can be repeated. */
  id?: string | undefined;
  tenant?: string | undefined;
  source?: string | undefined;
  /** 0 to 9, 9 first; 4 unless it is said. */
  priority?: number | undefined;
  /** Kept aside this long before it enters its lane. */
  delayMs?: number | undefined;
  window?: Window | undefined;
  /** Refused with `LaneNotIdle` when the key has anything to do. */
  onlyIfIdle?: boolean | undefined;
}

/** One event to send. */
export interface NewEvent extends EventOptions {
  key: string;
  payload: unknown;
}

/** What the sender of an event may rely on: it is stored. */
export interface Receipt {
  eventId: string;
  /** The id was known: this is the receipt of the first one. */
  duplicate: boolean;
  /** Missing while the event is kept aside. */
  seq: number | null;
  runId: string | null;
  dueAt: Date | null;
  state: string | null;
}

/** One event as a handler receives it. */
export interface Event<P = any> {
  seq: number;
  id: string;
  payload: P;
  receivedAt: Date;
  headers: Record<string, string>;
  /** The number it had before it was redriven as new. */
  wasSeq: number | null;
}

/** The envelope: all events of one run, in order, under one lease. A pushed batch has the same shape. */
export interface Batch<P = any> {
  runId: string;
  queue: string;
  key: string;
  tenant: string;
  /** 1 for the first claim; crashes count, refunded hand-backs do not. */
  attempt: number;
  maxAttempts: number;
  /** Larger for every later claim of the key. */
  token: number;
  /** Raised by every merge with newer events; steps are remembered under it. */
  revision: number;
  /** Why the batch was handed over: `quiet`, `cap`, `retry`, … */
  firedBy: string;
  firstAt: Date;
  lastAt: Date;
  leaseUntil: Date;
  /** The newest event of the key at the claim. */
  headSeq: number;
  events: Event<P>[];
}

/** A lease that was kept, and what happened meanwhile. */
export interface Extended {
  leaseUntil: Date;
  headSeq: number;
  /** Events that arrived for the next run. */
  newer: number;
  /** Newer events want the worker to stop. */
  interrupt: boolean;
  /** An operator wants the worker to stop. */
  cancel: boolean;
}

/** What is remembered of a piece of a run. */
export interface Step {
  state: "new" | "begun" | "unknown" | "done";
  value: any;
  /** This call has recorded it. */
  stored: boolean;
}

/** What became of a run: not always what was asked for. */
export interface Settlement {
  runId: string;
  state: string;
  /** When it is due again. */
  nextAt: Date | null;
  /** The same answer as before, because the call was repeated. */
  repeated: boolean;
}

/** The run's source is to blame. */
export interface SourceFault {
  kind: "time_out" | "connection" | "too_many_requests" | "server_error" | "other";
  retryAfterMs?: number | undefined;
}

/** How an attempt ends: what `settle` sends. */
export interface Ending {
  outcome: "succeeded" | "retry" | "failed" | "release" | "interrupted" | "superseded";
  error?: string | undefined;
  retryAfterMs?: number | undefined;
  result?: unknown;
  ifHead?: number | undefined;
  usage?: Record<string, number> | undefined;
  sourceFault?: SourceFault | undefined;
  sourceUnused?: boolean | undefined;
}

/** A duration as the wire has it. Never negative, and never NaN. */
export function milliseconds(duration: number): number {
  if (!(duration >= 0 && Number.isFinite(duration))) {
    throw new RangeError(`a duration is 0 or more milliseconds, not ${duration}`);
  }
  return Math.round(duration);
}

/** An event as it is sent; `madeId` is for one without an id. */
export function writeEvent(event: NewEvent, madeId: string): Wire {
  if (JSON.stringify(event.payload) === undefined) throw new TypeError("a payload is JSON; this one is nothing");
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

function writeWindow(window: Window): Wire {
  if ("fixed" in window) return { fixed: { wait_ms: milliseconds(window.fixed.waitMs) } };
  if ("quiet" in window) {
    const { quietMs, maxWaitMs } = window.quiet;
    return { quiet: { quiet_ms: milliseconds(quietMs), max_wait_ms: milliseconds(maxWaitMs) } };
  }
  return { none: {} };
}

/** An ending as it is sent. What is not there is left out by JSON. */
export function writeEnding(token: number, ending: Ending): Wire {
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

export function readReceipt(wire: Wire): Receipt {
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
export function readBatch<P = any>(wire: Wire): Batch<P> {
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
    events: wire.events.map((event: Wire) => ({
      seq: event.seq,
      id: event.id,
      payload: event.payload,
      receivedAt: new Date(event.received_at),
      headers: event.headers ?? {},
      wasSeq: event.was_seq ?? null,
    })),
  };
}

export function readExtended(wire: Wire): Extended {
  return {
    leaseUntil: new Date(wire.lease_until),
    headSeq: wire.head_seq,
    newer: wire.newer,
    interrupt: wire.interrupt,
    cancel: wire.cancel,
  };
}

export function readStep(wire: Wire): Step {
  return { state: wire.state, value: wire.value ?? null, stored: wire.stored };
}

export function readSettlement(wire: Wire): Settlement {
  return {
    runId: wire.run_id,
    state: wire.state,
    nextAt: readTime(wire.next_at),
    repeated: wire.repeated,
  };
}

function readTime(text: string | null | undefined): Date | null {
  return text === null || text === undefined ? null : new Date(text);
}
