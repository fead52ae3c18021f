"""The examples do what they say, as processes against a real server; the first worker of the README is one of them."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request

from quell_client import Quell
from support import CONFIG, HERE, PATIENCE, Process, Server, ServerCase, terminate

EXAMPLES = HERE.parent / "examples"
CLIENTS = HERE.parents[1]
GUIDE = HERE.parents[2] / "docs/guide/clients.md"
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
        quell.append("push", "ada", {"n": 1})
        receipt = quell.append("push", "ada", {"n": 2})
        line = receiver.line("ada")
        self.assertTrue(line.endswith('ada [{"n": 1}, {"n": 2}]'), line)
        self.assertEqual(self.ended(str(receipt.run_id), quell)["result"], {"seen": 2})
        forged = urllib.request.Request(f"http://127.0.0.1:{port}/", json.dumps({}).encode(), method="POST")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(forged, timeout=PATIENCE)
        self.assertEqual(refused.exception.code, 401)
        refused.exception.close()
        receiver.line("refused missing_signature")

    def test_the_first_workers_on_the_pages_are_the_examples(self) -> None:
        python = (EXAMPLES / "worker.py").read_text("utf-8")
        node = (CLIENTS / "typescript/examples/worker.mjs").read_text("utf-8")
        self.assertIn(python, (HERE.parent / "README.md").read_text("utf-8"))
        for example in (python, node):
            self.assertIn(example, GUIDE.read_text("utf-8"))

    def test_the_handler_in_shell_on_the_page_works(self) -> None:
        shell = GUIDE.read_text("utf-8").split("\n## ")[1]
        [config] = re.findall(r"```toml\n(.*?)```", shell, re.DOTALL)
        [script] = re.findall(r"```sh\n(.*?)```", shell, re.DOTALL)
        server = Server(config)
        self.addCleanup(server.stop)
        (server.folder / "answer.sh").write_text(script)
        quell = Quell(server.url)
        quell.append("chat", "customer-7", {"text": "hi"})
        run = self.ended(str(quell.append("chat", "customer-7", {"text": "are you there?"}).run_id), quell)
        self.assertEqual((run["state"], run["result"]), ("succeeded", {"answered": True}))
        self.assertEqual((server.folder / "said.txt").read_text(), "customer-7 said 2 things, attempt 1\n")

    def test_it_is_installed_and_not_taken_from_the_source(self) -> None:
        """Only where `cargo xtask test` says so: by hand the source is what one wants to test."""
        if os.environ.get("QUELL_CLIENT_INSTALLED"):
            where = subprocess.check_output([sys.executable, "-c", "import quell_client; print(quell_client.__file__)"])
            self.assertIn("site-packages", where.decode())
            import quell_client

            self.assertTrue(os.path.isfile(os.path.join(os.path.dirname(quell_client.__file__), "py.typed")))
