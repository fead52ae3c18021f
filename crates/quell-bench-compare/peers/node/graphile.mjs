// graphile-worker with the settings of its own page on performance: a local queue, completions in batches, 24 jobs at once.
//
// With a local queue, jobs of one named queue overlap, so `keyed` runs without it; `keyed-local` is the same with it, to show what
// is lost.

import { Logger, makeWorkerUtils, run as startWorker } from 'graphile-worker'
import pg from 'pg'
import { run, now, payload, key, version, answer, appends, Seen, Keyed, Burst } from './common.mjs'

const logger = new Logger(() => () => {})
const tuned = { completeJobBatchDelay: 0, failJobBatchDelay: 0, localQueue: { size: 500 } }
const pgPool = new pg.Pool({ connectionString: run.address, max: 25 })
for (const event of ['error', 'connect']) pgPool.on(event, (given) => { if (event === 'error') process.stderr.write(`${given}\n`); else given.on('error', () => {}) })
const utils = await makeWorkerUtils({ pgPool, logger })
await utils.migrate()
const work = (task, worker) => startWorker({ pgPool, logger, noHandleSignals: true, taskList: { task }, preset: { worker: { concurrentJobs: 24, pollInterval: 2000, ...worker } } })
const versions = { 'graphile-worker': version('graphile-worker'), Node: process.versions.node }

if (run.shape === 'jobs') {
  const figures = await appends({
    one: (n) => utils.addJob('task', payload(n)),
    bulk: (ns) => utils.addJobs(ns.map((n) => ({ identifier: 'task', payload: payload(n) }))),
  })
  const seen = new Seen(figures.appended)
  const since = now()
  await work((job) => { seen.add(job.n) }, tuned)
  answer({ ...figures, ...(await seen.drained(since, run.drain_ms)) }, versions)
} else if (run.shape === 'keyed' || run.shape === 'keyed-local') {
  for (let n = 0; n < run.keyed_events; n += run.bulk) {
    const numbers = Array.from({ length: Math.min(run.bulk, run.keyed_events - n) }, (_, i) => n + i)
    await utils.addJobs(numbers.map((n) => ({ identifier: 'task', payload: payload(n), queueName: key(n % run.keyed_keys) })))
  }
  const keyed = new Keyed()
  const since = now()
  await work((job) => keyed.handle(job.n), run.shape === 'keyed' ? {} : tuned)
  answer(await keyed.drained(since), versions)
} else {
  // A job with the same key is replaced until it runs, and payloads that are lists are joined: a debounce that keeps the events.
  const burst = new Burst()
  await work((events) => { burst.ran(events[0].n, events.length) }, { ...tuned, pollInterval: 100 })
  await burst.send(
    (keys) => {
      const runAt = new Date(Date.now() + run.quiet_ms)
      return utils.addJobs(keys.map((n) => ({ identifier: 'task', payload: [payload(n)], jobKey: key(n), runAt })))
    },
    { atOnce: 100, callers: 1 },
  )
  answer(await burst.ended(), versions)
}
