"""A real `quell serve` on a free port with a store of its own, real worker processes, and a connection that loses answers.

The binary is named by QUELL_BIN, or lies where `cargo build` puts it. Nothing here sleeps for a fixed time: `until` asks until
something is so, with a limit that no healthy machine reaches.
"""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from quell_client import Quell

HERE = Path(__file__).resolve().parent
# Everything takes milliseconds; on a noisy machine it may take seconds, and never this long.
PATIENCE = 60.0

CONFIG = """
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
"""


def quell_binary() -> str:
    named = os.environ.get("QUELL_BIN")
    path = Path(named) if named else HERE.parents[2] / "target/debug/quell"
    if not path.is_file():
        raise RuntimeError(f"there is no server to test against at {path}: `cargo build`, or name one in QUELL_BIN")
    return str(path)


def until(what: str, is_so: Callable[[], Any]) -> Any:
    """Asks until the answer is true, and gives it."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        answer = is_so()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"waited too long for: {what}")


class Process:
    """A program whose lines are read as they come; killed at the end."""

    def __init__(self, command: List[str], **settings: Any) -> None:
        self.child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **settings
        )
        self.lines: List[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.lines.append(line.decode("utf-8", "replace").rstrip())

    def line(self, part: str) -> str:
        """Waits for a line with this in it."""

        def found() -> Optional[str]:
            matching = [line for line in self.lines if part in line]
            if not matching and self.child.poll() is not None and not self._reader.is_alive():
                raise AssertionError(f"it ended without saying {part!r}:\n" + "\n".join(self.lines))
            return matching[0] if matching else None

        try:
            return str(until(f"a line with {part!r}", found))
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.lines)) from None

    def send(self, number: int) -> None:
        self.child.send_signal(number)

    def wait(self) -> int:
        try:
            code = self.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError("it did not end:\n" + "\n".join(self.lines)) from None
        self._reader.join(PATIENCE)
        return code

    def kill(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self._reader.join(PATIENCE)
        if self.child.stdout is not None:
            self.child.stdout.close()


class Server:
    """A server that can be killed and started again on the same port and store."""

    def __init__(self, config: str = CONFIG, **environment: str) -> None:
        self._environment = environment
        self.folder = Path(tempfile.mkdtemp(prefix="quell-client-"))
        (self.folder / "quell.toml").write_text(config)
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [quell_binary(), "serve", "--listen", f"127.0.0.1:{self.port}", "--log", "error"]
        self.process = Process(command, cwd=self.folder, env=self._clean())
        line = self.process.line("http://127.0.0.1:")
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found is not None
        self.port = int(found.group(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def quell(self, *args: str) -> str:
        """A command of the binary on the same store."""
        done = subprocess.run(
            [quell_binary(), *args], cwd=self.folder, env=self._clean(), capture_output=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def _clean(self) -> Dict[str, str]:
        """Nothing of the surroundings that would steer the server."""
        steering = ("QUELL_", "DATABASE_URL", "REDIS_URL", "RUST_LOG", "PORT")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
        return dict(kept, **self._environment)

    def stop(self) -> None:
        self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class ServerCase(unittest.TestCase):
    """Tests that share a server; each keeps to keys of its own."""

    server: Server
    quell: Quell

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()
        cls.quell = Quell(cls.server.url)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.quell.close()
        cls.server.stop()

    def ended(self, run_id: str, quell: Optional[Quell] = None) -> Dict[str, Any]:
        """The run, as soon as it has ended."""

        def over() -> Optional[Dict[str, Any]]:
            run = (quell or self.quell).run(run_id, wait=5)
            return run if run["state"] in ("succeeded", "failed", "cancelled") else None

        run: Dict[str, Any] = until(f"the end of {run_id}", over)
        return run

    def worker_process(self, name: str, *args: str, url: Optional[str] = None) -> Process:
        """One of the worker programs of these tests, as a real process; killed at the end of the test."""
        environment = dict(os.environ, QUELL_URL=url or self.server.url, PYTHONUNBUFFERED="1")
        process = Process([sys.executable, str(HERE / name), *args], env=environment)
        self.addCleanup(process.kill)
        return process


class LossyProxy:
    """A connection to a server on which answers get lost.

    It passes requests on and waits for the answers, so the server has done what was asked; then it hangs up instead of answering,
    as often as `lose` says for a path. That is the unknown outcome.
    """

    def __init__(self, port: int, lose: Dict[str, int]) -> None:
        self._port = port
        self._lose = dict(lose)
        self.lost: List[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._port)) as far:
            losing = False
            while True:
                ready, _, _ = select.select([near, far], [], [])
                for one in ready:
                    try:
                        data = one.recv(1 << 16)
                    except OSError:
                        return
                    if not data:
                        return
                    if one is far:
                        if losing:
                            return  # The answer is here, and nobody will ever see it.
                        near.sendall(data)
                        continue
                    losing = losing or self._loses(data)
                    far.sendall(data)

    def _loses(self, data: bytes) -> bool:
        head = data.split(b"\r\n", 1)[0].decode("latin-1")
        for part, times in self._lose.items():
            if head.endswith("HTTP/1.1") and part in head and times > 0:
                self._lose[part] = times - 1
                self.lost.append(part)
                return True
        return False


def terminate(process: Process) -> Tuple[int, List[str]]:
    """Asks a process to end, and waits until it has."""
    process.send(signal.SIGTERM)
    return process.wait(), process.lines
