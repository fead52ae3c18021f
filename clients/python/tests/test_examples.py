"""The examples do what they say, as processes against a real server; the first worker of the README is one of them."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request

from quell_client import Quell
from support import CONFIG, HERE, PATIENCE, Process, Server, ServerCase, terminate

EXAMPLES = HERE.parent / "examples"
SECRET = "whsec_bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0="


class Examples(ServerCase):
    def example(self, name: str, *args: str, **more: str) -> Process:
        environment = dict(os.environ, QUELL_URL=self.server.url, PYTHONUNBUFFERED="1", **more)
        environment.pop("QUELL_TOKEN", None)
        process = Process([sys.executable, str(EXAMPLES / name), *args], env=environment)
        self.addCleanup(process.kill)
        return process

    def test_what_one_example_sends_another_one_answers(self) -> None:
        worker = self.example("worker.py", "chat")
        sender = self.example("send.py", "chat", "ada", "hi", "are you there?")
        self.assertEqual(sender.wait(), 0, sender.lines)
        self.assertEqual(worker.line("ada"), "ada you said: hi, are you there?")
        self.assertEqual(len(sender.lines), 2)
        run = self.ended(sender.lines[0].split()[-1])
        self.assertEqual(run["result"], {"answer": "you said: hi, are you there?"})
        code, lines = terminate(worker)
        self.assertEqual(code, 0, lines)

    def test_the_receiver_takes_what_the_server_pushes_and_nothing_else(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        receiver = self.example("receiver.py", str(port), PUSH_SECRET=f"{SECRET} {SECRET}")
        server = Server(
            CONFIG
            + f"""
[queues.push]
window = {{ quiet = "100ms" }}
retry = {{ base = "200ms" }}
handler = {{ http = "http://127.0.0.1:{port}/", secret_env = "PUSH_SECRET" }}
""",
            PUSH_SECRET=SECRET,
        )
        self.addCleanup(server.stop)
        quell = Quell(server.url)
        quell.append("push", "ada", {"text": "hi"})
        receipt = quell.append("push", "ada", {"text": "are you there?"})
        line = receiver.line("ada")
        self.assertTrue(line.endswith("ada you said: hi, are you there?"), line)
        self.assertEqual(self.ended(str(receipt.run_id), quell)["result"], {"answer": "you said: hi, are you there?"})
        forged = urllib.request.Request(f"http://127.0.0.1:{port}/", json.dumps({}).encode(), method="POST")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(forged, timeout=PATIENCE)
        self.assertEqual(refused.exception.code, 401)
        refused.exception.close()
        receiver.line("refused missing_signature")

    def test_the_first_worker_of_the_readme_is_the_example(self) -> None:
        self.assertIn((EXAMPLES / "worker.py").read_text("utf-8"), (HERE.parent / "README.md").read_text("utf-8"))

    def test_it_is_installed_and_not_taken_from_the_source(self) -> None:
        """Only where `cargo xtask test` says so: by hand the source is what one wants to test."""
        if os.environ.get("QUELL_CLIENT_INSTALLED"):
            where = subprocess.check_output([sys.executable, "-c", "import quell_client; print(quell_client.__file__)"])
            self.assertIn("site-packages", where.decode())
            import quell_client

            self.assertTrue(os.path.isfile(os.path.join(os.path.dirname(quell_client.__file__), "py.typed")))
