"""What goes over the wire, as types: events to send, receipts, batches, answers.

Only reading and writing of JSON is here, all of it pure. Fields that a newer server adds are ignored, so an older client
goes on working. Durations are seconds (or `timedelta`) on this side and milliseconds on the wire; times are aware `datetime`s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Dict, List, Mapping, Optional, Union

#: Seconds, or a `timedelta`.
Duration = Union[int, float, timedelta]


def milliseconds(duration: Duration) -> int:
    """A duration as the wire has it. Never negative, and never NaN."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a duration is 0 or more seconds, not {duration!r}")
    return round(seconds * 1000)


def read_time(text: str) -> datetime:
    """RFC 3339 with a `Z`, which `fromisoformat` of Python 3.9 does not know."""
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


def _time_or_none(text: Optional[str]) -> Optional[datetime]:
    return None if text is None else read_time(text)


@dataclass(frozen=True)
class Window:
    """When a lane is due, in place of its queue's setting. Make one with `none`, `fixed` or `quiet`."""

    wire: Mapping[str, Mapping[str, int]]

    @staticmethod
    def none() -> Window:
        """At once."""
        return Window({"none": {}})

    @staticmethod
    def fixed(wait: Duration) -> Window:
        """So long after the first event."""
        return Window({"fixed": {"wait_ms": milliseconds(wait)}})

    @staticmethod
    def quiet(quiet: Duration, max_wait: Duration) -> Window:
        """When no event has come for so long, at the latest so long after the first."""
        return Window({"quiet": {"quiet_ms": milliseconds(quiet), "max_wait_ms": milliseconds(max_wait)}})


@dataclass
class NewEvent:
    """One event to send. Without an `id` one is made, so that sending it can be repeated."""

    key: str
    payload: Any
    id: Optional[str] = None
    tenant: Optional[str] = None
    source: Optional[str] = None
    #: 0 to 9, 9 first; 4 unless it is said.
    priority: Optional[int] = None
    #: Kept aside this long before it enters its lane.
    delay: Optional[Duration] = None
    window: Optional[Window] = None
    #: Refused with `LaneNotIdle` when the key has anything to do.
    only_if_idle: bool = False

    def to_wire(self, made_id: str) -> Dict[str, Any]:
        """As it is sent; `made_id` is for an event without an id."""
        wire: Dict[str, Any] = {"key": self.key, "payload": self.payload, "id": made_id if self.id is None else self.id}
        optional = {"tenant": self.tenant, "source": self.source, "priority": self.priority}
        wire.update({name: value for name, value in optional.items() if value is not None})
        if self.delay is not None:
            wire["delay_ms"] = milliseconds(self.delay)
        if self.window is not None:
            wire["window"] = self.window.wire
        if self.only_if_idle:
            wire["only_if_idle"] = True
        return wire


@dataclass(frozen=True)
class Receipt:
    """What the sender of an event may rely on: it is stored."""

    event_id: str
    #: The id was known: this is the receipt of the first one.
    duplicate: bool
    #: Missing while the event is kept aside.
    seq: Optional[int]
    run_id: Optional[str]
    due_at: Optional[datetime]
    state: Optional[str]

    @staticmethod
    def read(wire: Mapping[str, Any]) -> Receipt:
        return Receipt(
            event_id=wire["event_id"],
            duplicate=wire["duplicate"],
            seq=wire.get("seq"),
            run_id=wire.get("run_id"),
            due_at=_time_or_none(wire.get("due_at")),
            state=wire.get("state"),
        )


@dataclass(frozen=True)
class Event:
    """One event as a handler receives it."""

    seq: int
    id: str
    payload: Any
    received_at: datetime
    headers: Mapping[str, str]
    #: The number it had before it was redriven as new.
    was_seq: Optional[int]

    @staticmethod
    def read(wire: Mapping[str, Any]) -> Event:
        return Event(
            seq=wire["seq"],
            id=wire["id"],
            payload=wire["payload"],
            received_at=read_time(wire["received_at"]),
            headers=wire.get("headers") or {},
            was_seq=wire.get("was_seq"),
        )


@dataclass(frozen=True)
class Batch:
    """The envelope: all events of one run, in order, under one lease. A pushed batch has the same shape."""

    run_id: str
    queue: str
    key: str
    tenant: str
    #: 1 for the first claim; crashes count, refunded hand-backs do not.
    attempt: int
    max_attempts: int
    #: Larger for every later claim of the key.
    token: int
    #: Raised by every merge with newer events; steps are remembered under it.
    revision: int
    #: Why the batch was handed over: `quiet`, `cap`, `retry`, …
    fired_by: str
    first_at: datetime
    last_at: datetime
    lease_until: datetime
    #: The newest event of the key at the claim.
    head_seq: int
    events: List[Event]

    @staticmethod
    def read(wire: Mapping[str, Any]) -> Batch:
        return Batch(
            run_id=wire["run_id"],
            queue=wire["queue"],
            key=wire["key"],
            tenant=wire["tenant"],
            attempt=wire["attempt"],
            max_attempts=wire["max_attempts"],
            token=wire["token"],
            revision=wire["revision"],
            fired_by=wire["fired_by"],
            first_at=read_time(wire["first_at"]),
            last_at=read_time(wire["last_at"]),
            lease_until=read_time(wire["lease_until"]),
            head_seq=wire["head_seq"],
            events=[Event.read(event) for event in wire["events"]],
        )


@dataclass(frozen=True)
class Extended:
    """A lease that was kept, and what happened meanwhile."""

    lease_until: datetime
    head_seq: int
    #: Events that arrived for the next run.
    newer: int
    #: Newer events want the worker to stop.
    interrupt: bool
    #: An operator wants the worker to stop.
    cancel: bool

    @staticmethod
    def read(wire: Mapping[str, Any]) -> Extended:
        return Extended(
            lease_until=read_time(wire["lease_until"]),
            head_seq=wire["head_seq"],
            newer=wire["newer"],
            interrupt=wire["interrupt"],
            cancel=wire["cancel"],
        )


@dataclass(frozen=True)
class Step:
    """What is remembered of a piece of a run: `new`, `begun`, `unknown` or `done`."""

    state: str
    value: Any
    #: This call has recorded it.
    stored: bool

    @staticmethod
    def read(wire: Mapping[str, Any]) -> Step:
        return Step(state=wire["state"], value=wire.get("value"), stored=wire["stored"])


@dataclass(frozen=True)
class Settlement:
    """What became of a run: not always what was asked for."""

    run_id: str
    state: str
    #: When it is due again.
    next_at: Optional[datetime]
    #: The same answer as before, because the call was repeated.
    repeated: bool

    @staticmethod
    def read(wire: Mapping[str, Any]) -> Settlement:
        return Settlement(
            run_id=wire["run_id"],
            state=wire["state"],
            next_at=_time_or_none(wire.get("next_at")),
            repeated=wire["repeated"],
        )


@dataclass(frozen=True)
class SourceFault:
    """The run's source is to blame: `time_out`, `connection`, `too_many_requests`, `server_error` or `other`."""

    kind: str
    retry_after: Optional[Duration] = None

    def to_wire(self) -> Dict[str, Any]:
        wire: Dict[str, Any] = {"kind": self.kind}
        if self.retry_after is not None:
            wire["retry_after_ms"] = milliseconds(self.retry_after)
        return wire


@dataclass
class Ending:
    """How an attempt ends: what `settle` sends. `outcome` is `succeeded`, `retry`, `failed`, `release`, `interrupted` or `superseded`."""

    outcome: str
    error: Optional[str] = None
    retry_after: Optional[Duration] = None
    result: Any = None
    if_head: Optional[int] = None
    usage: Mapping[str, float] = field(default_factory=dict)
    source_fault: Optional[SourceFault] = None
    source_unused: bool = False

    def to_wire(self, token: int) -> Dict[str, Any]:
        wire: Dict[str, Any] = {"token": token, "outcome": self.outcome}
        optional = {"error": self.error, "result": self.result, "if_head": self.if_head}
        wire.update({name: value for name, value in optional.items() if value is not None})
        if self.retry_after is not None:
            wire["retry_after_ms"] = milliseconds(self.retry_after)
        if self.usage:
            wire["usage"] = dict(self.usage)
        if self.source_fault is not None:
            wire["source_fault"] = self.source_fault.to_wire()
        if self.source_unused:
            wire["source_unused"] = True
        return wire
