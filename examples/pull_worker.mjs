// A worker for Quell in plain JavaScript: Node 18 or newer, no package is needed.
//
//     quell serve --handler pull
//     node examples/pull_worker.mjs http://127.0.0.1:7717 hello
//
// QUELL_TOKEN is sent if it is set. While handle() runs, a timer keeps the lease; what handle() returns is the run's
// result, and what it throws puts the run back for another try.

const [url, queue] = process.argv.slice(2);
const headers = { "Content-Type": "application/json" };
if (process.env.QUELL_TOKEN) headers.Authorization = `Bearer ${process.env.QUELL_TOKEN}`;

async function call(path, body) {
  const answer = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

async function handle(run) {
  console.log(run.key, JSON.stringify(run.events.map((event) => event.payload)));
  return { events: run.events.length };
}

for (;;) {
  try {
    const { claims } = await call("/v1/claims", { queues: [queue], worker: "node", wait_ms: 30000, lease_ms: 30000 });
    for (const run of claims) {
      const path = `/v1/claims/${run.run_id}`;
      // The lease is 30 s: one extension may get lost.
      const keep = setInterval(() => call(`${path}/extend`, { token: run.token }).catch(console.error), 10000);
      const end = await handle(run).then(
        (result) => ({ outcome: "succeeded", result }),
        (error) => ({ outcome: "retry", error: String(error) }),
      );
      clearInterval(keep);
      await call(`${path}/settle`, { token: run.token, ...end });
    }
  } catch (error) {
    console.error("again in a second:", error.message);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
