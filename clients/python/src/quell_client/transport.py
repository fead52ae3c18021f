"""One HTTP call, and the same call again when nobody knows what became of it.

A call whose answer is lost is repeated as it was, byte for byte. That is safe because every call of this package carries what
makes it one: the id of an event, the `claim_id` of a claim, the token of a run. Connections are kept open and reused; one that
the server has closed meanwhile costs a silent second try. Environment proxies are not used and redirects are not followed.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import urlsplit

from .errors import CallCancelled, ConnectionFailed, QuellError, ServerError, read_problem

USER_AGENT = "quell-client-python/0.1"

# A connection within a data centre takes milliseconds; one over the world less than this.
_CONNECT_SECONDS = 10.0
# The server closes a connection after 10 s without a request, so one that is older than this is not trusted.
_IDLE_SECONDS = 5.0
# As many as a process with a busy worker has calls under way; others are closed after use.
_IDLE_CONNECTIONS = 32
# Pauses before a repeat: they double from the first to the last.
_PAUSE_FIRST = 0.1
_PAUSE_LAST = 5.0


class Cancel:
    """Lets another thread cut calls short, also while they wait for an answer."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sockets: List[socket.socket] = []

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        self._event.set()
        with self._lock:
            for sock in self._sockets:
                try:
                    # Not the method of a TLS socket, which would take the connection apart under its reader.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
                except OSError:
                    pass  # It is gone already.

    def wait(self, seconds: float) -> bool:
        """Sleeps; true when it was cancelled."""
        return self._event.wait(seconds)

    def _attach(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.append(sock)
        if self.cancelled:
            raise CallCancelled("the call was cancelled")

    def _detach(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.remove(sock)


@dataclass(frozen=True)
class Repeat:
    """How long a call is repeated while its answer is temporary or lost."""

    #: Seconds; none means until it is cancelled.
    patience: Optional[float]
    cancel: Optional[Cancel] = None
    #: Told of every failure that is followed by a repeat, with the pause before it.
    told: Optional[Callable[[QuellError, float], None]] = None


def pause_before(number: int, problem: QuellError, chance: float) -> float:
    """Seconds before the repeat with this number, from 0; `chance` is drawn from [0, 1). Pure."""
    doubled = min(_PAUSE_FIRST * 2.0 ** min(number, 16), _PAUSE_LAST)
    # Half of it by chance, so that clients who failed together do not come back together.
    pause = doubled * (0.5 + chance / 2)
    asked: Optional[float] = getattr(problem, "retry_after", None)
    return pause if asked is None else max(pause, asked)


def encode(body: Any) -> bytes:
    """A body as JSON; what is none is a `ValueError` or `TypeError` here, and not an answer later."""
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode("utf-8")


class Transport:
    """Connections to one server. May be used by many threads."""

    def __init__(
        self,
        url: str,
        token: Optional[str],
        timeout: float,
        ssl_context: Optional[ssl.SSLContext],
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            shown = "" if "@" in url else f", not {url!r}"
            raise ValueError(f"a server's address looks like http://127.0.0.1:7717{shown}")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a token is given as `token`, not inside the address")
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls = parts.scheme == "https"
        self._context = ssl_context
        self.timeout = timeout
        self._headers = {"User-Agent": USER_AGENT, "Accept": "application/json, application/problem+json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token.strip()}"
        self._lock = threading.Lock()
        self._idle: List[Tuple[float, http.client.HTTPConnection]] = []
        self._pid = os.getpid()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        repeat: Repeat,
        headers: Optional[Dict[str, str]] = None,
        timeout: Optional[float] = None,
        repeatable: bool = True,
    ) -> Any:
        """The answer as JSON. A call that is not `repeatable` is sent once and never on a connection that may be closed."""
        sent = dict(self._headers, **(headers or {}))
        payload = None if body is None else encode(body)
        if payload is not None:
            sent["Content-Type"] = "application/json"
        request = (method, self._prefix + path, payload, sent)
        seconds = self.timeout if timeout is None else timeout
        started = time.monotonic()
        for number in itertools.count():
            try:
                return self._once(request, seconds, repeat.cancel, fresh=number > 0 or not repeatable)
            except QuellError as problem:
                pause = pause_before(number, problem, random.random())
                spent = time.monotonic() - started
                over = repeat.patience is not None and spent + pause > repeat.patience
                if not problem.temporary or not repeatable or over:
                    raise
                if repeat.told is not None:
                    repeat.told(problem, pause)
                self._sleep(pause, repeat.cancel)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    @staticmethod
    def _sleep(pause: float, cancel: Optional[Cancel]) -> None:
        if cancel is None:
            time.sleep(pause)
        elif cancel.wait(pause):
            raise CallCancelled("the call was cancelled before it was repeated")

    def _once(
        self,
        request: Tuple[str, str, Optional[bytes], Dict[str, str]],
        timeout: float,
        cancel: Optional[Cancel],
        fresh: bool,
    ) -> Any:
        kept = None if fresh else self._take()
        if kept is not None:
            try:
                return self._exchange(kept, request, timeout, cancel)
            except ConnectionFailed as problem:
                if isinstance(problem.__cause__, socket.timeout):
                    raise
                # The server has closed it while it was idle, most likely: that is no failure worth a word.
        return self._exchange(self._new(), request, timeout, cancel)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        request: Tuple[str, str, Optional[bytes], Dict[str, str]],
        timeout: float,
        cancel: Optional[Cancel],
    ) -> Any:
        method, target, payload, headers = request
        attached: Optional[socket.socket] = None
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(timeout)
            if cancel is not None:
                attached = connection.sock
                cancel._attach(attached)
            connection.request(method, target, payload, headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if cancel is not None and cancel.cancelled:
                raise CallCancelled("the call was cancelled") from error
            raise ConnectionFailed(f"no answer from {self._origin}: {_worded(error)}") from error
        except BaseException:
            connection.close()
            raise
        finally:
            if cancel is not None and attached is not None:
                cancel._detach(attached)
        self._give_back(connection)
        if not 200 <= response.status < 300:
            told = {name.lower(): value for name, value in response.getheaders()}
            raise read_problem(response.status, told, body)
        return self._read(response.status, body)

    def _read(self, status: int, body: bytes) -> Any:
        if not body:
            return None
        try:
            return json.loads(body)
        except ValueError as error:
            text = f"the answer of {self._origin} is no JSON: is this the address of a Quell server?"
            raise ServerError(status, "no-json", text) from error

    def _new(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_SECONDS)
        if self._context is None:
            self._context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_CONNECT_SECONDS, context=self._context
        )

    def _take(self) -> Optional[http.client.HTTPConnection]:
        """The connection that was used last, if it is young enough to be alive."""
        with self._lock:
            if self._pid != os.getpid():
                # A child of a fork: what it inherited is its parent's.
                self._pid, self._idle = os.getpid(), []
            if not self._idle:
                return None
            since, connection = self._idle.pop()
            if time.monotonic() - since <= _IDLE_SECONDS:
                return connection
            stale, self._idle = self._idle, []
        connection.close()
        for _, other in stale:
            other.close()
        return None

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        if connection.sock is None:
            return  # The server wanted it closed.
        with self._lock:
            if len(self._idle) < _IDLE_CONNECTIONS and self._pid == os.getpid():
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()


def _worded(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there; is `quell serve` running?"
    if isinstance(error, socket.timeout):
        return "it took too long"
    return str(error) or type(error).__name__
