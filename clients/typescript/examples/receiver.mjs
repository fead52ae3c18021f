// Takes pushed batches: node receiver.mjs PORT, with the secret in PUSH_SECRET (several, separated by spaces, while it is changed).
//
// quell.toml on the other side: handler = { http = "http://127.0.0.1:PORT/", secret_file = "push.secret" }

import { createServer } from "node:http";
import { readBatch, SignatureError, verify } from "quell-client";

const secrets = (process.env.PUSH_SECRET ?? "").split(" ");

const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  try {
    const id = verify(body, request.headers, secrets);
    const batch = readBatch(JSON.parse(body.toString()));
    const answer = `you said: ${batch.events.map((event) => event.payload.text).join(", ")}`;
    console.log(id, batch.key, answer); // the id stays the same when a batch is sent again
    response.setHeader("Content-Type", "application/json").end(JSON.stringify({ result: { answer } }));
  } catch (error) {
    if (!(error instanceof SignatureError)) throw error;
    console.log("refused", error.reason);
    response.writeHead(401).end();
  }
});
server.listen(Number(process.argv[2]), "127.0.0.1");
