// A real `quell serve` on a free port with a store of its own, real worker processes, and a connection that loses answers.
//
// The binary is named by QUELL_BIN, or lies where `cargo build` puts it. Nothing here sleeps for a fixed time: `until` asks until
// something is so, with a limit that no healthy machine reaches.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { Quell } from "quell-client";

export const HERE = dirname(fileURLToPath(import.meta.url));
// Everything takes milliseconds; on a noisy machine it may take seconds, and never this long.
export const PATIENCE_MS = 60_000;

export const CONFIG = `
[queues.chat]
window = { quiet = "300ms", max_wait = "5s" }
handler = "pull"
[queues.jobs]
window = "none"
retry = { base = "100ms", jitter = 0.0, attempts = 3 }
handler = "pull"
[queues.cut]
window = { quiet = "100ms" }
during_run = "interrupt"
handler = "pull"
[queues.gate]
window = { quiet = "100ms" }
during_run = "gate"
handler = "pull"
[queues.own]
handler = "log"
`;

/** A module of the client that is not part of its surface. */
export function inside(name) {
  const index = createRequire(import.meta.url).resolve("quell-client");
  return import(pathToFileURL(join(dirname(index), name)).href);
}

export function quellBinary() {
  const path = process.env.QUELL_BIN ?? join(HERE, "../../../target/debug/quell");
  if (!existsSync(path)) {
    throw new Error(`there is no server to test against at ${path}: \`cargo build\`, or name one in QUELL_BIN`);
  }
  return path;
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Asks until the answer is true, and gives it. */
export async function until(what, isSo) {
  const limit = performance.now() + PATIENCE_MS;
  while (performance.now() < limit) {
    const answer = await isSo();
    if (answer) return answer;
    await pause(20);
  }
  throw new Error(`waited too long for: ${what}`);
}

/** A program whose lines are read as they come. */
export class Process {
  constructor(command, args, options) {
    this.lines = [];
    this.child = spawn(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
    this.ended = once(this.child, "close").then(([code, signal]) => code ?? signal);
    this.over = false;
    this.ended.then(() => (this.over = true));
    for (const stream of [this.child.stdout, this.child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => this.lines.push(line));
    }
  }

  /** Waits for a line with this in it. */
  async line(part) {
    const found = () => {
      const line = this.lines.find((line) => line.includes(part));
      if (line === undefined && this.over) throw new Error("it ended");
      return line;
    };
    try {
      return await until(`a line with ${JSON.stringify(part)}`, found);
    } catch (error) {
      throw new Error(`${error.message}; it did not say ${JSON.stringify(part)}:\n${this.lines.join("\n")}`);
    }
  }

  async wait() {
    let timer;
    const limit = new Promise((resolve) => (timer = setTimeout(resolve, PATIENCE_MS)));
    const code = await Promise.race([this.ended, limit]);
    clearTimeout(timer);
    if (code === undefined) throw new Error(`it did not end:\n${this.lines.join("\n")}`);
    return code;
  }

  async kill() {
    this.child.kill("SIGKILL");
    await this.ended;
  }

  /** Asks it to end, and waits until it has. */
  async terminate() {
    this.child.kill("SIGTERM");
    return this.wait();
  }
}

/** Nothing of the surroundings that would steer the server. */
function clean(more) {
  const steering = /^(QUELL_|DATABASE_URL|REDIS_URL|RUST_LOG|PORT)/;
  return { ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !steering.test(name))), ...more };
}

/** A server that can be killed and started again on the same port and store. */
export class Server {
  static async start(config = CONFIG, environment = {}) {
    const server = new Server();
    server.environment = environment;
    server.folder = mkdtempSync(join(tmpdir(), "quell-client-"));
    writeFileSync(join(server.folder, "quell.toml"), config);
    server.port = 0;
    await server.begin();
    return server;
  }

  async begin() {
    const args = ["serve", "--listen", `127.0.0.1:${this.port}`, "--log", "error"];
    this.process = new Process(quellBinary(), args, { cwd: this.folder, env: clean(this.environment) });
    const line = await this.process.line("http://127.0.0.1:");
    this.port = Number(/127\.0\.0\.1:(\d+)/.exec(line)[1]);
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** A command of the binary on the same store. */
  async quell(...args) {
    const { stdout } = await promisify(execFile)(quellBinary(), args, { cwd: this.folder, env: clean(this.environment) });
    return stdout;
  }

  async stop() {
    await this.process.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The run, as soon as it has ended. */
export async function ended(quell, runId) {
  return until(`the end of ${runId}`, async () => {
    const run = await quell.run(runId, { waitMs: 5_000 });
    return ["succeeded", "failed", "cancelled"].includes(run.state) ? run : null;
  });
}

/** One of the worker programs, as a real process; killed at the end of the test. */
export function program(t, path, args, environment) {
  const process_ = new Process(process.execPath, [path, ...args], { env: { ...process.env, ...environment } });
  t.after(() => process_.kill());
  return process_;
}

/**
 * A connection to a server on which answers get lost.
 *
 * It passes requests on and waits for the answers, so the server has done what was asked; then it hangs up instead of answering, as
 * often as `lose` says for a path. That is the unknown outcome.
 */
export class LossyProxy {
  static async start(t, port, lose) {
    const proxy = new LossyProxy();
    proxy.lose = { ...lose };
    proxy.lost = [];
    proxy.server = createServer((near) => proxy.serve(near, port));
    proxy.server.listen(0, "127.0.0.1");
    await once(proxy.server, "listening");
    proxy.url = `http://127.0.0.1:${proxy.server.address().port}`;
    t.after(() => proxy.server.close());
    return proxy;
  }

  serve(near, port) {
    const far = createConnection(port, "127.0.0.1");
    let losing = false;
    const end = () => {
      near.destroy();
      far.destroy();
    };
    for (const one of [near, far]) one.on("error", end).on("close", end);
    near.on("data", (data) => {
      losing ||= this.loses(data.toString("latin1").split("\r\n", 1)[0]);
      far.write(data);
    });
    // With `losing` the answer is here, and nobody will ever see it.
    far.on("data", (data) => (losing ? end() : near.write(data)));
  }

  loses(head) {
    const part = Object.keys(this.lose).find((part) => head.endsWith("HTTP/1.1") && head.includes(part) && this.lose[part] > 0);
    if (part === undefined) return false;
    this.lose[part] -= 1;
    this.lost.push(part);
    return true;
  }
}

/** A client of the server with everything that tests of workers need. */
export function clientOf(server, options) {
  return new Quell(server.url, options);
}
