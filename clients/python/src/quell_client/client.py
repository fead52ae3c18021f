"""`Quell`: one method for each call of the server that senders and workers need.

Every method either returns what the server said or raises an exception of `errors`; a lost answer is repeated (`transport`).
The rest of the interface, everything to see and to control, is there through `request`.
"""

from __future__ import annotations

import ssl
import time
import uuid
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union
from urllib.parse import quote, urlencode

from .errors import QuellError
from .run import Run
from .shapes import (
    Batch,
    Duration,
    Ending,
    Extended,
    NewEvent,
    Receipt,
    Settlement,
    Step,
    Window,
    milliseconds,
    read_time,
)
from .transport import Repeat, Transport

# The server answers a long poll after 55 s at the latest.
WAIT_MAX = 55.0
# Runs that one claim may take.
CLAIM_MAX = 100


class Quell:
    """A server. May be shared by threads; connections are opened when they are needed."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:7717",
        token: Optional[str] = None,
        *,
        timeout: float = 30.0,
        patience: float = 30.0,
        ssl_context: Optional[ssl.SSLContext] = None,
    ) -> None:
        """`timeout` is for one answer; for `patience` seconds a call is repeated while its answer is temporary or lost."""
        self._transport = Transport(url, token, timeout, ssl_context)
        self._repeat = Repeat(patience)

    def __enter__(self) -> Quell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept open. The next call opens one again."""
        self._transport.close()

    # Events in

    def append(
        self,
        queue: str,
        key: str,
        payload: Any,
        *,
        id: Optional[str] = None,
        delay: Optional[Duration] = None,
        priority: Optional[int] = None,
        tenant: Optional[str] = None,
        source: Optional[str] = None,
        window: Optional[Window] = None,
        only_if_idle: bool = False,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Receipt:
        """Stores one event durably. A known `id` is answered with the first receipt; with another payload it is `Conflict`.

        Without an `id` one is made here, so that a lost answer can be asked for again. `headers` may be `traceparent` and
        `tracestate`, which travel with the event.
        """
        event = NewEvent(key, payload, id, tenant, source, priority, delay, window, only_if_idle)
        return self.append_many(queue, [event], headers=headers)[0]

    def append_many(
        self, queue: str, events: Iterable[NewEvent], *, headers: Optional[Mapping[str, str]] = None
    ) -> List[Receipt]:
        """Stores events, all or none; at most 10,000 and 8 MiB. The receipts are in the order of the events."""
        wire = [event.to_wire(f"evt_{uuid.uuid4().hex}") for event in events]
        if not wire:
            return []
        path = f"/v1/queues/{_part(queue)}/events"
        # One event is sent as such, so that the place of a mistake reads as the caller wrote it.
        body: Any = wire[0] if len(wire) == 1 else wire
        try:
            answer = self._transport.call("POST", path, body, repeat=self._repeat, headers=dict(headers or {}))
        except QuellError as problem:
            problem.event_ids = [event["id"] for event in wire]
            raise
        return [Receipt.read(receipt) for receipt in answer["receipts"]]

    # Work out

    def claim(
        self,
        queues: Union[str, Sequence[str]] = (),
        *,
        worker: str = "python",
        max: int = 1,
        wait: Duration = 0,
        lease: Optional[Duration] = None,
        tenant: Optional[str] = None,
        claim_id: Optional[str] = None,
        repeat: Optional[Repeat] = None,
    ) -> List[Run]:
        """Takes runs under a lease, each of another key, and waits for some. No queue means every queue that is pulled.

        Each run must be settled, or extended before its lease ends: `Worker` does both. Repeated with the same `claim_id` and
        `worker` it returns what it got before.
        """
        wait_ms = milliseconds(wait)
        body: Dict[str, Any] = {
            "queues": [queues] if isinstance(queues, str) else list(queues),
            "worker": worker,
            "max": max,
            "wait_ms": wait_ms,
            "claim_id": claim_id or uuid.uuid4().hex,
        }
        if lease is not None:
            body["lease_ms"] = milliseconds(lease)
        if tenant is not None:
            body["tenant"] = tenant
        answer = self._transport.call(
            "POST",
            "/v1/claims",
            body,
            repeat=repeat or self._repeat,
            timeout=self._transport.timeout + min(wait_ms / 1000, WAIT_MAX),
        )
        arrived = time.monotonic()
        now = read_time(answer["now"])
        runs = []
        for wire in answer["claims"]:
            batch = Batch.read(wire)
            granted = (batch.lease_until - read_time(wire["claimed_at"])).total_seconds()
            # A claim that was repeated late has little left of its lease.
            left = (batch.lease_until - now).total_seconds()
            asked = granted if lease is None else milliseconds(lease) / 1000
            runs.append(Run(self, batch, lease=asked, lease_end=arrived + left))
        return runs

    def extend(
        self,
        run_id: str,
        token: int,
        *,
        lease: Optional[Duration] = None,
        repeat: Optional[Repeat] = None,
        timeout: Optional[float] = None,
    ) -> Extended:
        """Keeps a lease, and tells what happened meanwhile."""
        body: Dict[str, Any] = {"token": token}
        if lease is not None:
            body["lease_ms"] = milliseconds(lease)
        path = f"/v1/claims/{_part(run_id)}/extend"
        answer = self._transport.call("POST", path, body, repeat=repeat or self._repeat, timeout=timeout)
        return Extended.read(answer)

    def hold(self, run_id: str, token: int, *, if_head: Optional[int] = None) -> str:
        """The gate before an effect: `held`, or `superseded` or `interrupted`, which end the attempt."""
        body: Dict[str, Any] = {"token": token}
        if if_head is not None:
            body["if_head"] = if_head
        answer = self._transport.call("POST", f"/v1/claims/{_part(run_id)}/hold", body, repeat=self._repeat)
        return str(answer["answer"])

    def get_step(self, run_id: str, token: int, name: str) -> Step:
        """What is remembered of a piece of the run."""
        path = f"/v1/claims/{_part(run_id)}/steps/{_part(name)}?{urlencode({'token': token})}"
        return Step.read(self._transport.call("GET", path, repeat=self._repeat))

    def put_step(self, run_id: str, token: int, name: str, value: Any) -> Step:
        """Remembers the result of a piece of the run; the first one stays."""
        path = f"/v1/claims/{_part(run_id)}/steps/{_part(name)}"
        body = {"token": token, "value": value}
        return Step.read(self._transport.call("PUT", path, body, repeat=self._repeat))

    def begin_step(self, run_id: str, token: int, name: str) -> Step:
        """Records the intent, before something is done that must not be done twice."""
        path = f"/v1/claims/{_part(run_id)}/steps/{_part(name)}"
        body = {"token": token, "begin": True}
        return Step.read(self._transport.call("PUT", path, body, repeat=self._repeat))

    def settle(
        self, run_id: str, token: int, ending: Union[str, Ending], *, repeat: Optional[Repeat] = None
    ) -> Settlement:
        """Ends an attempt. Repeated with the same token and outcome it gets the same answer."""
        told = Ending(ending) if isinstance(ending, str) else ending
        path = f"/v1/claims/{_part(run_id)}/settle"
        answer = self._transport.call("POST", path, told.to_wire(token), repeat=repeat or self._repeat)
        return Settlement.read(answer)

    # Everything else

    def run(self, run_id: str, *, wait: Duration = 0) -> Dict[str, Any]:
        """One run with its events, steps and history; with `wait`, when it has ended (55 s at the most). Look at its `state`."""
        wait_ms = milliseconds(wait)
        path = f"/v1/runs/{_part(run_id)}?{urlencode({'wait_ms': wait_ms})}"
        timeout = self._transport.timeout + min(wait_ms / 1000, WAIT_MAX)
        answer: Dict[str, Any] = self._transport.call("GET", path, repeat=self._repeat, timeout=timeout)
        return answer

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Any other call of the HTTP interface, such as `request("POST", "/v1/lanes/chat/ada/flush")`.

        Only `GET` is repeated when its answer is lost.
        """
        repeatable = method.upper() == "GET"
        return self._transport.call(method.upper(), path, body, repeat=self._repeat, repeatable=repeatable)


def _part(text: str) -> str:
    """One part of a path; a name of dots would change the path."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if quoted.strip(".") == "" else quoted
