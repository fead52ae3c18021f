// BullMQ: `addBulk`, one worker with many jobs at once, and deduplication in its debounce mode for bursts. Strict order per key
// is a feature of its commercial edition (groups), so there is no `keyed`.

import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { run, now, payload, key, version, answer, appends, Seen, Burst } from './common.mjs'

const connect = () => new Redis(run.address, { maxRetriesPerRequest: null })
const queue = new Queue('task', { connection: connect(), defaultJobOptions: { removeOnComplete: true, removeOnFail: true } })
const work = (handler) => new Worker('task', handler, { connection: connect(), concurrency: 256 })
const versions = { BullMQ: version('bullmq'), Node: process.versions.node }

if (run.shape === 'jobs') {
  const figures = await appends({
    one: (n) => queue.add('task', payload(n)),
    bulk: (ns) => queue.addBulk(ns.map((n) => ({ name: 'task', data: payload(n) }))),
  })
  const seen = new Seen(figures.appended)
  const since = now()
  work(async (job) => { seen.add(job.data.n) })
  answer({ ...figures, ...(await seen.drained(since, run.drain_ms)) }, versions)
} else {
  const burst = new Burst()
  await work(async (job) => { burst.ran(job.data.n, 1) }).waitUntilReady()
  const deduplication = (n) => ({ id: key(n), ttl: run.quiet_ms, extend: true, replace: true })
  await burst.send(
    (keys) => queue.addBulk(keys.map((n) => ({ name: 'task', data: payload(n), opts: { delay: run.quiet_ms, deduplication: deduplication(n) } }))),
    { atOnce: 100, callers: 1 },
  )
  answer(await burst.ended(), versions)
}
