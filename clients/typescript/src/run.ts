/**
 * `Run`: one batch under one lease, as a handler sees it.
 *
 * A run knows what its heartbeats were told. Nothing here can stop a handler: it can look (`interrupted`, `stopping`), give `signal` to
 * whatever it waits for, wait (`wait`) or have an error thrown (`check`), and each step and the gate look by themselves. What keeps a
 * late handler from doing harm is the token, which the server compares at every call.
 */

import type { Quell } from "./client.js";
import { AlreadySettled, Interrupted, LeaseLost, NotFound, StaleToken, StepUnknown, Superseded } from "./errors.js";
import { Heartbeat } from "./heartbeat.js";
import type { Batch, Ending, Event, Extended, Settlement, SourceFault } from "./shapes.js";
import { type Repeat, sleep } from "./transport.js";

/** A lease that is just over is looked at this often while somebody waits: its renewal may be under way. */
const LOOK_MIN_MS = 10;

/** How long before the end of a lease it is unsure: a reserve for clocks that run at different rates. Pure. */
export function margin(leaseMs: number): number {
  return Math.min(Math.max(leaseMs / 10, 10), 5_000, leaseMs / 2);
}

/** All events of one run, and what its handler can ask of it. `P` is the type of a payload. */
export class Run<P = any> {
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
  usage: Record<string, number> = {};
  /** Set it when the run's source is to blame. */
  sourceFault: SourceFault | undefined = undefined;
  /** Set it when no request was made to the run's source. */
  sourceUnused = false;

  readonly #quell: Quell;
  readonly #unwanted = new AbortController();
  readonly #told = new AbortController();
  #sureUntil: number;
  #newer = 0;
  #interrupt = false;
  #cancel = false;
  #stopping = false;
  #gaveWay = false;
  #lost: string | null = null;
  #ending: Ending | null = null;
  #heartbeat: Heartbeat | null = null;

  /** `leaseEnd` is a moment of `performance.now()`. */
  constructor(
    quell: Quell,
    readonly batch: Batch<P>,
    readonly leaseMs: number,
    leaseEnd: number,
  ) {
    this.#quell = quell;
    this.runId = batch.runId;
    this.queue = batch.queue;
    this.key = batch.key;
    this.tenant = batch.tenant;
    this.events = batch.events;
    this.attempt = batch.attempt;
    this.maxAttempts = batch.maxAttempts;
    this.token = batch.token;
    this.revision = batch.revision;
    this.firedBy = batch.firedBy;
    this.headSeq = batch.headSeq;
    this.#sureUntil = leaseEnd - margin(leaseMs);
  }

  get isLastAttempt(): boolean {
    return this.attempt >= this.maxAttempts;
  }

  /** Events that wait for the next run, as the last heartbeat has told. */
  get newer(): number {
    return this.#newer;
  }

  /** The work is not wanted any more: newer events interrupted it, an operator cancelled it, or its lease is lost or unsure. */
  get interrupted(): boolean {
    return this.#interrupt || this.#cancel || this.#gaveWay || this.#lost !== null || this.#unsure;
  }

  /** Newer events want to be part of the batch. */
  get interruptAsked(): boolean {
    return this.#interrupt;
  }

  /** An operator wants it to stop. */
  get cancelled(): boolean {
    return this.#cancel;
  }

  /** The worker is being stopped: end soon, or throw `Release` to hand the run back. */
  get stopping(): boolean {
    return this.#stopping;
  }

  /** Aborted when the work is not wanted any more, or was handed back: for `fetch` and all that takes a signal. */
  get signal(): AbortSignal {
    return this.#unwanted.signal;
  }

  /** Sleeps, but not longer than the run is wanted. True when the handler should come to an end. */
  async wait(ms: number): Promise<boolean> {
    const until = performance.now() + ms;
    while (!this.interrupted && !this.#stopping) {
      const left = until - performance.now();
      if (left <= 0) return false;
      // Not beyond what is sure of the lease: heartbeats move that on, or the handler learns that they do not.
      await sleep(Math.min(left, Math.max(this.leftMs, LOOK_MIN_MS)), this.#told.signal);
    }
    return true;
  }

  /** Throws when the work is not wanted any more; a handler lets that pass, and the worker does the rest. */
  check(): void {
    if (this.#unsure && this.#lost === null) throw new LeaseLost(`the lease of ${this.runId} could not be renewed in time`);
    this.#wanted();
  }

  /**
   * The gate before an effect that cannot be taken back: from here on the batch stays as it is.
   *
   * Throws `Superseded` when newer events have arrived since the claim, and `Interrupted` when somebody wants the run to stop. Then the
   * attempt is over and refunded: let the error pass. `anyway` does not ask for newer events.
   */
  async hold(options: { anyway?: boolean | undefined } = {}): Promise<void> {
    this.#wanted();
    const ifHead = options.anyway ? undefined : this.headSeq;
    const answer = await this.#ask(() => this.#quell.hold(this.runId, this.token, { ifHead }));
    if (answer === "held") return;
    this.#gaveWay = true;
    this.abandon();
    if (answer === "superseded") throw new Superseded(`newer events have arrived: ${this.runId} starts over with them`);
    throw new Interrupted(`${this.runId} is wanted by newer events or an operator`);
  }

  /**
   * Does the work and remembers its result, or gives back the result that an earlier attempt of this batch has stored.
   *
   * The result is JSON, up to 256 KiB, and comes back as JSON does. An error of the work is not remembered.
   */
  async step<T>(name: string, work: () => T | Promise<T>): Promise<T> {
    this.#wanted();
    const known = await this.#ask(() => this.#quell.getStep(this.runId, this.token, name));
    return known.state === "done" ? known.value : this.#finish(name, await work());
  }

  /**
   * Does work that must not be repeated: the intent is recorded before it begins.
   *
   * Throws `StepUnknown` when an earlier attempt recorded the intent and no result: nobody here knows whether it happened, and the
   * handler decides. A handler that lets it pass has failed, so a person looks at it.
   */
  async stepOnce<T>(name: string, work: () => T | Promise<T>): Promise<T> {
    this.#wanted();
    const begun = await this.#ask(() => this.#quell.beginStep(this.runId, this.token, name));
    if (begun.state === "done") return begun.value;
    if (begun.state === "unknown") throw new StepUnknown(name);
    return this.#finish(name, await work());
  }

  /** The same text in every attempt of this batch: an idempotency key for whoever is asked to do the step. */
  stepKey(name: string): string {
    return `${this.runId}/${this.revision}/${name}`;
  }

  /** Keeps the lease. `Worker` and `kept` call it every third of the lease. */
  async extend(options: { repeat?: Repeat | undefined; timeoutMs?: number | undefined } = {}): Promise<Extended> {
    const sent = performance.now();
    // The lease is said each time: a server that has been restarted does not know what the claim had asked for.
    const asked = { ...options, leaseMs: this.leaseMs };
    const kept = await this.#ask(() => this.#quell.extend(this.runId, this.token, asked));
    // Counted from when it was sent: the server cannot have begun the lease earlier.
    this.#sureUntil = Math.max(this.#sureUntil, sent + this.leaseMs - margin(this.leaseMs));
    this.#newer = kept.newer;
    this.#interrupt ||= kept.interrupt;
    this.#cancel ||= kept.cancel;
    if (this.#interrupt || this.#cancel) this.#tell();
    return kept;
  }

  /** Keeps the lease until `stop` of what it returns is called, or nothing may be settled any more. */
  kept(everyMs?: number, told?: (text: string) => void): Heartbeat {
    this.#heartbeat?.stop();
    this.#heartbeat = new Heartbeat(this, everyMs, told);
    return this.#heartbeat;
  }

  /** Ends the attempt; for those who claim by themselves. The first ending is the only one: others are refused here. */
  async settle(ending: Ending["outcome"] | Ending, options: { repeat?: Repeat | undefined } = {}): Promise<Settlement> {
    const told = typeof ending === "string" ? { outcome: ending } : ending;
    if (!this.decide(told)) throw new LeaseLost(`${this.runId} has been settled or handed back by this worker`);
    return this.#ask(() => this.#quell.settle(this.runId, this.token, told, options));
  }

  /** For how long the lease is sure by this machine's clock; negative when it is not. */
  get leftMs(): number {
    return this.#sureUntil - performance.now();
  }

  /** An ending was decided on. */
  get settled(): boolean {
    return this.#ending !== null;
  }

  /** Nothing may be settled any more: it gave way at the gate, was lost, or an ending was decided on. */
  get over(): boolean {
    return this.#gaveWay || this.#lost !== null || this.settled;
  }

  /** Why the run is not this worker's any more, if it is not. */
  get lost(): string | null {
    return this.#lost;
  }

  /** Fixes what will be settled. Only one ending is ever sent for a token. @internal */
  decide(ending: Ending): boolean {
    if (this.#gaveWay || this.#lost !== null) return false;
    this.#ending ??= ending;
    return this.#ending === ending;
  }

  /** The server did not take this ending, so another one may be decided on. @internal */
  refused(ending: Ending): void {
    if (this.#ending === ending) this.#ending = null;
  }

  /** The worker is being stopped. @internal */
  stop(): void {
    this.#stopping = true;
    this.#told.abort();
  }

  /** It was handed back or gave way while its handler works: there is no lease to keep. @internal */
  abandon(): void {
    this.#heartbeat?.stop();
    this.#tell();
  }

  get #unsure(): boolean {
    return this.#ending === null && this.leftMs <= 0;
  }

  #tell(): void {
    this.#told.abort();
    this.#unwanted.abort();
  }

  /** As `check`, but leaves a lease that is only unsure to the server, which knows. */
  #wanted(): void {
    if (this.#lost !== null) throw new LeaseLost(this.#lost);
    if (this.#ending !== null) throw new LeaseLost(`${this.runId} has been settled or handed back by this worker`);
    if (this.#interrupt || this.#cancel || this.#gaveWay) {
      const who = this.#cancel ? "an operator cancelled it" : "newer events want to be part of it";
      throw new Interrupted(`${this.runId} is to stop: ${who}`);
    }
  }

  async #ask<A>(call: () => Promise<A>): Promise<A> {
    try {
      return await call();
    } catch (problem) {
      if (!(problem instanceof StaleToken || problem instanceof AlreadySettled || problem instanceof NotFound)) throw problem;
      const text = `${this.runId} is not this worker's any more: ${problem.detail}`;
      // Otherwise that is known: a heartbeat was under way when the gate ended the attempt.
      if (!this.#gaveWay) {
        this.#lost = text;
        this.#tell();
      }
      throw new LeaseLost(text, { cause: problem });
    }
  }

  async #finish<T>(name: string, made: T): Promise<T> {
    // Also when the run was interrupted meanwhile: what was paid for is worth keeping.
    const kept = await this.#ask(() => this.#quell.putStep(this.runId, this.token, name, made));
    // As the server keeps it, also the first time: so every attempt sees the same thing.
    return kept.value;
  }
}
