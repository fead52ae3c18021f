"""Takes pushed batches: python receiver.py PORT, with the secret in PUSH_SECRET (several, separated by spaces, while it is changed).

quell.toml on the other side: handler = { http = "http://127.0.0.1:PORT/", secret_file = "push.secret" }
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from quell_client import Batch, SignatureError, verify

SECRETS = os.environ["PUSH_SECRET"].split()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            id = verify(body, self.headers.items(), SECRETS)
        except SignatureError as refused:
            print("refused", refused.reason, flush=True)
            self.send_error(401)
            return
        batch = Batch.read(json.loads(body))
        answer = "you said: " + ", ".join(event.payload["text"] for event in batch.events)
        print(id, batch.key, answer, flush=True)  # the id stays the same when a batch is sent again
        report = json.dumps({"result": {"answer": answer}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(report)))
        self.end_headers()
        self.wfile.write(report)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
