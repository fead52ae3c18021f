// What the drivers in Node share: their arguments, the shapes as far as they are the same for all, and the one line they answer with.
//
// A driver is started as `node DRIVER.mjs SHAPE ADDRESS SIZES` and prints one line of JSON at its end. `SIZES` are those of the
// runner (`src/sizes.rs`), times in milliseconds.

import { readFileSync } from 'node:fs'

const [, , shape, address, sizes] = process.argv
export const run = { shape, address, ...JSON.parse(sizes) }

export const now = () => performance.now()
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)))

// The same bytes and keys as Quell's own benchmark has.
export const payload = (n) => ({ n, text: 'a short message as people send it, long enough to be typical of a chat' })
export const key = (n) => BigInt.asUintN(64, BigInt(n) * 0x9e3779b97f4a7c15n).toString(16).padStart(16, '0') + n.toString(16).padStart(8, '0')

export const version = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version

/** Ends the program with its answer; whatever still runs in it is of no interest any more. */
export function answer(figures, versions) {
  process.stdout.write(JSON.stringify({ figures, versions }) + '\n', () => process.exit(0))
}

export const rate = (count, since) => count / ((now() - since) / 1000)

/** Appends singly, then by many callers, then the rest in bulk. `bulk` may be missing; then the rest is appended by many callers. */
export async function appends({ one, bulk }) {
  const figures = {}
  let n = 0
  let since = now()
  while (n < run.jobs / 4 && now() - since < run.one_ms) await one(n++)
  figures.one = rate(n, since)

  const first = n
  since = now()
  const callers = async (end, limit) => {
    const caller = async () => { while (n < end && now() - since < limit) await one(n++) }
    await Promise.all(Array.from({ length: run.callers }, caller))
  }
  await callers(first + run.jobs / 4, run.callers_ms)
  figures.callers = rate(n - first, since)

  const second = n
  since = now()
  if (bulk) {
    while (n < run.jobs) {
      const end = Math.min(n + run.bulk, run.jobs)
      await bulk(Array.from({ length: end - n }, (_, i) => n + i))
      n = end
    }
    figures.bulk = rate(n - second, since)
  } else {
    await callers(run.jobs, Infinity)
  }
  figures.appended = n
  return figures
}

/** Counts what handlers get, and says when it is enough. */
export class Seen {
  constructor(wanted) {
    this.wanted = wanted
    this.numbers = new Set()
    this.handled = 0
    this.full = new Promise((resolve) => { this.enough = resolve })
    if (wanted === 0) this.enough()
  }
  add(n) {
    this.numbers.add(n)
    if (++this.handled >= this.wanted) this.enough()
  }
  /** Until everything has come or the time is over; the figures of a drain. */
  async drained(since, limit) {
    await Promise.race([this.full, sleep(limit - (now() - since))])
    return { drain: rate(this.handled, since), drained: this.handled, distinct: this.numbers.size }
  }
}

/** Looks for overlaps and disorder in what handlers get of 500 keys, each of which takes a millisecond. */
export class Keyed {
  constructor() {
    this.keys = new Map()
    this.seen = new Seen(run.keyed_events)
    this.overlaps = 0
    this.disorders = 0
  }
  async handle(n) {
    const of = n % run.keyed_keys
    const state = this.keys.get(of) ?? { busy: 0, latest: -1 }
    this.keys.set(of, state)
    if (state.busy++ > 0) this.overlaps++
    if (n <= state.latest) this.disorders++
    state.latest = n
    await sleep(1)
    state.busy--
    this.seen.add(n)
  }
  async drained(since) {
    await Promise.race([this.seen.full, sleep(run.keyed_ms - (now() - since))])
    return {
      seconds: (now() - since) / 1000,
      handled: this.seen.handled,
      overlaps: this.overlaps,
      disorders: this.disorders,
    }
  }
}

/** Sends bursts at the pace of the shape. `send` gets the keys and the round; it is given up when the time for sending is over. */
export class Burst {
  constructor() {
    this.last = new Map()
    this.late = []
    this.runs = 0
    this.delivered = 0
    this.sent = 0
  }
  /** A run for this key number with this many events; late counts from the end of the quiet after the key's latest event. */
  ran(of, events) {
    this.runs++
    this.delivered += events
    this.late.push(Date.now() - ((this.last.get(of) ?? Date.now()) + run.quiet_ms))
  }
  /** `append` sends the events with these key numbers, which are those of one call. */
  async send(append, { atOnce, callers }) {
    const since = now()
    for (let round = 0; round < run.burst_rounds; round++) {
      let next = 0
      const caller = async () => {
        while (next < run.burst_keys && now() - since < run.send_ms) {
          const first = next
          next = Math.min(next + atOnce, run.burst_keys)
          const keys = Array.from({ length: next - first }, (_, i) => first + i)
          await append(keys, round)
          for (const of of keys) this.last.set(of, Date.now())
          this.sent += keys.length
        }
      }
      await Promise.all(Array.from({ length: callers }, caller))
      await sleep(since + run.pace_ms * (round + 1) - now())
    }
    this.append_seconds = (now() - since) / 1000
  }
  /** Until everything has come, or nothing has for so long that nothing will. */
  async ended() {
    const since = now()
    let [before, changed] = [this.runs, since]
    while (this.delivered < this.sent && now() - since < run.quiet_ms + run.patience_ms && now() - changed < 2 * run.quiet_ms) {
      await sleep(50)
      if (this.runs !== before) [before, changed] = [this.runs, now()]
    }
    // One more look for runs that should not be.
    await sleep(200)
    const late = this.late.sort((a, b) => a - b)
    const at = (share) => late[Math.round((late.length - 1) * share)]
    return {
      append_seconds: this.append_seconds,
      sent: this.sent,
      runs: this.runs,
      delivered: this.delivered,
      late_p50: at(0.5),
      late_p99: at(0.99),
    }
  }
}
