// pg-boss: large batches and several workers for plain jobs, `key_strict_fifo` for keys, `sendDebounced` for bursts.

import { PgBoss } from 'pg-boss'
import { run, now, payload, key, version, answer, appends, Seen, Keyed, Burst } from './common.mjs'

const boss = new PgBoss({ connectionString: run.address, max: 25, schedule: false })
boss.on('error', (error) => process.stderr.write(`${error}\n`))
await boss.start()
const versions = { 'pg-boss': version('pg-boss'), Node: process.versions.node }

if (run.shape === 'jobs') {
  await boss.createQueue('task')
  const figures = await appends({
    one: (n) => boss.send('task', payload(n)),
    bulk: (ns) => boss.insert('task', ns.map((n) => ({ data: payload(n) }))),
  })
  const seen = new Seen(figures.appended)
  const since = now()
  // A worker waits for its polling interval after each batch, half a second at the least. Fetching by hand does not, and is part
  // of the documented interface.
  const worker = async () => {
    while (seen.handled < seen.wanted && now() - since < run.drain_ms) {
      const jobs = await boss.fetch('task', { batchSize: 500 })
      if (jobs.length === 0) return
      for (const job of jobs) seen.add(job.data.n)
      await boss.complete('task', jobs.map((job) => job.id))
    }
  }
  await Promise.all(Array.from({ length: 2 }, worker))
  answer({ ...figures, ...(await seen.drained(since, run.drain_ms)) }, versions)
} else if (run.shape === 'keyed') {
  await boss.createQueue('task', { policy: 'key_strict_fifo' })
  // One event of each key at a time: jobs of one insert are created at the same moment, and their order is left to chance.
  for (let n = 0; n < run.keyed_events; n += run.keyed_keys) {
    const numbers = Array.from({ length: Math.min(run.keyed_keys, run.keyed_events - n) }, (_, i) => n + i)
    await boss.insert('task', numbers.map((n) => ({ data: payload(n), singletonKey: key(n % run.keyed_keys) })))
  }
  const keyed = new Keyed()
  const since = now()
  // Up to one job of each key at a time, each batch at once.
  const worker = async () => {
    while (keyed.seen.handled < run.keyed_events && now() - since < run.keyed_ms) {
      const jobs = await boss.fetch('task', { batchSize: run.keyed_keys })
      await Promise.all(jobs.map((job) => keyed.handle(job.data.n)))
      if (jobs.length > 0) await boss.complete('task', jobs.map((job) => job.id))
    }
  }
  await worker()
  answer(await keyed.drained(since), versions)
} else {
  await boss.createQueue('task')
  const burst = new Burst()
  let done = false
  const worker = async () => {
    while (!done) {
      const jobs = await boss.fetch('task', { batchSize: 500 })
      for (const job of jobs) burst.ran(job.data.n, 1)
      if (jobs.length > 0) await boss.complete('task', jobs.map((job) => job.id))
      else await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
  worker()
  await burst.send(([n]) => boss.sendDebounced('task', payload(n), {}, run.quiet_ms / 1000, key(n)), { atOnce: 1, callers: run.callers })
  const figures = await burst.ended()
  done = true
  answer(figures, versions)
}
