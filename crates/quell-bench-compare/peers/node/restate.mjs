// Restate: a virtual object per key, called one way through the ingress. The server is started here, in the folder that ADDRESS
// names, because every cell has a fresh one, as a fresh schema or file is for the others.
//
// Invocations begin as soon as they are accepted, so a backlog cannot be drained by itself: `drain` is from the first send of the 64
// callers to the last handler. Debounce is not offered; `burst` builds it as its guide does, with state and a delayed call to itself.

import { spawn } from 'node:child_process'
import http from 'node:http'
import net from 'node:net'
import * as restate from '@restatedev/restate-sdk'
import { run, now, sleep, payload, key, version, answer, rate, Seen, Keyed, Burst } from './common.mjs'

const free = () => new Promise((resolve) => {
  const server = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address()
    server.close(() => resolve(port))
  })
})
const [ingress, admin, node, service] = await Promise.all([free(), free(), free(), free()])
const versions = { Restate: version('@restatedev/restate-server'), 'SDK': version('@restatedev/restate-sdk'), Node: process.versions.node }

// One sending agent with kept connections.
const agent = new http.Agent({ keepAlive: true, maxSockets: run.callers })
const request = (port, method, path, body) => new Promise((resolve, reject) => {
  const text = JSON.stringify(body)
  const headers = text === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }
  const sent = http.request({ agent, host: '127.0.0.1', port, method, path, headers }, (response) => {
    response.resume()
    response.on('end', () => response.statusCode < 300 ? resolve() : reject(new Error(`${path}: ${response.statusCode}`)))
  })
  sent.on('error', reject)
  sent.end(text)
})

const seen = new Seen(Infinity)
const keyed = new Keyed()
const burst = new Burst()
let warmed = 0
const object = restate.object({
  name: 'task',
  handlers: {
    warm: async () => { warmed++ },
    none: async (_, event) => { seen.add(event.n) },
    keyed: async (_, event) => { await keyed.handle(event.n) },
    add: async (ctx, event) => {
      const events = (await ctx.get('events')) ?? []
      ctx.set('events', [...events, event])
      ctx.objectSendClient({ name: 'task' }, ctx.key, { delay: run.quiet_ms }).flush(events.length + 1)
    },
    flush: async (ctx, length) => {
      const events = (await ctx.get('events')) ?? []
      if (events.length !== length) return
      ctx.clear('events')
      burst.ran(events[0].n, events.length)
    },
  },
})
await restate.serve({ services: [object], port: service })

const server = spawn(
  // Not the script of the same name: it would start the server as a child of its own and leave it behind.
  new URL(`node_modules/@restatedev/restate-server-linux-${process.arch}/bin/restate-server`, import.meta.url).pathname,
  ['--no-logo', '--node-name', 'peer', '--base-dir', run.address, '--bind-port', String(node)],
  {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: {
      ...process.env,
      RESTATE_LOG_FILTER: 'error',
      RESTATE_LISTEN_MODE: 'tcp',
      RESTATE_DISABLE_TELEMETRY: 'true',
      DO_NOT_TRACK: '1',
      RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
      RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
      // Plain invocations keep no journal after they end, as the others keep no finished job.
      RESTATE_DEFAULT_JOURNAL_RETENTION: '0s',
    },
  },
)
process.on('exit', () => server.kill('SIGKILL'))
for (let tries = 0; ; tries++) {
  try {
    await request(admin, 'GET', '/health')
    await request(admin, 'POST', '/deployments', { uri: `http://127.0.0.1:${service}` })
    await request(ingress, 'GET', '/restate/health')
    break
  } catch (error) {
    if (tries > 100) throw error
    await sleep(100)
  }
}

const send = (n, name, of = n) => request(ingress, 'POST', `/task/${key(of)}/${name}/send`, payload(n))

// The first calls wait until all partitions have their leaders, which is no part of any figure.
await Promise.all(Array.from({ length: run.callers }, (_, n) => send(n, 'warm')))
while (warmed < run.callers) await sleep(5)

if (run.shape === 'jobs') {
  const figures = {}
  let n = 0
  let since = now()
  while (n < run.jobs / 4 && now() - since < run.one_ms) await send(n++, 'none')
  figures.one = rate(n, since)
  // What the single sender sent is handled before the clock of the next figure starts.
  while (seen.handled < n) await sleep(1)
  const first = n
  since = now()
  const limit = run.callers_ms + run.drain_ms
  const caller = async () => { while (n < first + run.jobs / 4 && now() - since < limit) await send(n++, 'none') }
  await Promise.all(Array.from({ length: run.callers }, caller))
  figures.callers = rate(n - first, since)
  while (seen.handled < n && now() - since < limit) await sleep(1)
  figures.drain = rate(seen.handled - first, since)
  answer({ ...figures, appended: n, drained: seen.handled, distinct: seen.numbers.size }, versions)
} else if (run.shape === 'keyed') {
  // Sending and handling go on at the same time. Each key has one sender, as order is that of arrival.
  const since = now()
  let next = 0
  const caller = async () => {
    while (next < run.keyed_keys) {
      const of = next++
      for (let n = of; n < run.keyed_events && now() - since < run.keyed_ms; n += run.keyed_keys) await send(n, 'keyed', of)
    }
  }
  await Promise.all(Array.from({ length: run.callers }, caller))
  answer(await keyed.drained(since), versions)
} else {
  await burst.send(([n]) => send(n, 'add'), { atOnce: 1, callers: run.callers })
  answer(await burst.ended(), versions)
}
