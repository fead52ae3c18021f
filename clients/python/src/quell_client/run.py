"""`Run`: one batch under one lease, as a handler sees it.

A run knows what its heartbeats were told. Python cannot stop a thread, so nothing here stops a handler: it can look
(`interrupted`, `stopping`), wait (`wait`) or have an exception raised (`check`), and each step and the gate look by themselves.
What keeps a late handler from doing harm is the token, which the server compares at every call.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, Optional, TypeVar, Union, cast

from .errors import AlreadySettled, Interrupted, LeaseLost, NotFound, StaleToken, StepUnknown, Superseded
from .heartbeat import Heartbeat
from .shapes import Batch, Duration, Ending, Extended, Settlement, SourceFault
from .transport import Repeat

if TYPE_CHECKING:
    from .client import Quell

T = TypeVar("T")
Answer = TypeVar("Answer")

# A lease that is just over is looked at this often while somebody waits: its renewal may be under way.
_LOOK_MIN = 0.01


def margin(lease: float) -> float:
    """Seconds before the end of a lease at which it is unsure: a reserve for clocks that run at different rates. Pure."""
    return min(max(lease / 10, 0.01), 5.0, lease / 2)


class Run:
    """All events of one run, and what its handler can ask of it."""

    def __init__(self, quell: Quell, batch: Batch, *, lease: float, lease_end: float) -> None:
        self._quell = quell
        self.batch = batch
        self.run_id = batch.run_id
        self.queue = batch.queue
        self.key = batch.key
        #: Empty for those who have none.
        self.tenant = batch.tenant
        #: In order; at least one.
        self.events = batch.events
        #: 1 for the first claim; crashes count, refunded hand-backs do not.
        self.attempt = batch.attempt
        self.max_attempts = batch.max_attempts
        #: Larger for every later claim of the key: pass it on, so that a stale worker's effects can be told apart.
        self.token = batch.token
        #: Raised by every merge with newer events: the same run with another batch.
        self.revision = batch.revision
        self.fired_by = batch.fired_by
        self.head_seq = batch.head_seq
        #: Seconds.
        self.lease = lease
        #: Events that wait for the next run, as the last heartbeat has told.
        self.newer = 0
        #: Named numbers that are reported with the end of the run, such as `run.usage["tokens"] = 512`.
        self.usage: Dict[str, float] = {}
        #: Set it when the run's source is to blame.
        self.source_fault: Optional[SourceFault] = None
        #: Set it when no request was made to the run's source.
        self.source_unused = False

        self._lock = threading.Lock()
        self._told = threading.Event()
        self._sure_until = lease_end - margin(lease)
        self._interrupt = False
        self._cancel = False
        self._stopping = False
        self._lost: Optional[str] = None
        self._gave_way = False
        self._ending: Optional[Ending] = None

    def __repr__(self) -> str:
        return f"<Run {self.run_id} of {self.queue}/{self.key}, attempt {self.attempt}, {len(self.events)} events>"

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    # What heartbeats have told

    @property
    def interrupted(self) -> bool:
        """The work is not wanted any more: newer events interrupted it, an operator cancelled it, or its lease is lost or unsure."""
        return self._interrupt or self._cancel or self._gave_way or self._lost is not None or self._unsure()

    @property
    def cancelled(self) -> bool:
        """An operator wants it to stop."""
        return self._cancel

    @property
    def stopping(self) -> bool:
        """The worker is being stopped: end soon, or raise `Release` to hand the run back."""
        return self._stopping

    def wait(self, seconds: float) -> bool:
        """Sleeps, but not longer than the run is wanted. True when the handler should come to an end."""
        until = time.monotonic() + seconds
        while not self.interrupted and not self._stopping:
            left = until - time.monotonic()
            if left <= 0:
                return False
            # Not beyond what is sure of the lease: heartbeats move that on, or the handler learns that they do not.
            self._told.wait(min(left, max(self.left, _LOOK_MIN)))
        return True

    def check(self) -> None:
        """Raises when the work is not wanted any more; a handler lets that pass, and the worker does the rest."""
        if self._unsure() and self._lost is None:
            raise LeaseLost(f"the lease of {self.run_id} could not be renewed in time")
        self._wanted()

    # The gate and the steps

    def hold(self, *, anyway: bool = False) -> None:
        """The gate before an effect that cannot be taken back: from here on the batch stays as it is.

        Raises `Superseded` when newer events have arrived since the claim, and `Interrupted` when somebody wants the run to
        stop. Then the attempt is over and refunded: let the exception pass. `anyway` does not ask for newer events.
        """
        self._wanted()
        if_head = None if anyway else self.head_seq
        answer = self._ask(lambda: self._quell.hold(self.run_id, self.token, if_head=if_head))
        if answer == "held":
            return
        self._gave_way = True
        self._told.set()
        if answer == "superseded":
            raise Superseded(f"newer events have arrived: {self.run_id} starts over with them")
        raise Interrupted(f"{self.run_id} is wanted by newer events or an operator")

    def step(self, name: str, work: Callable[[], T]) -> T:
        """Does the work and remembers its result, or gives back the result that an earlier attempt of this batch has stored.

        The result is JSON, up to 256 KiB, and comes back as JSON does. An exception of the work is not remembered.
        """
        self._wanted()
        known = self._ask(lambda: self._quell.get_step(self.run_id, self.token, name))
        if known.state == "done":
            return cast(T, known.value)
        return self._finish(name, work())

    def step_once(self, name: str, work: Callable[[], T]) -> T:
        """Does work that must not be repeated: the intent is recorded before it begins.

        Raises `StepUnknown` when an earlier attempt recorded the intent and no result: nobody here knows whether it happened,
        and the handler decides. A handler that lets it pass has failed, so a person looks at it.
        """
        self._wanted()
        begun = self._ask(lambda: self._quell.begin_step(self.run_id, self.token, name))
        if begun.state == "done":
            return cast(T, begun.value)
        if begun.state == "unknown":
            raise StepUnknown(name)
        return self._finish(name, work())

    def step_key(self, name: str) -> str:
        """The same text in every attempt of this batch: an idempotency key for whoever is asked to do the step."""
        return f"{self.run_id}/{self.revision}/{name}"

    # The lease and the end

    def extend(self, *, repeat: Optional[Repeat] = None, timeout: Optional[float] = None) -> Extended:
        """Keeps the lease. `Worker` and `kept` call it every third of the lease."""
        sent = time.monotonic()
        # Said each time: a server that has been restarted does not know what the claim had asked for.
        kept = self._ask(
            lambda: self._quell.extend(self.run_id, self.token, lease=self.lease, repeat=repeat, timeout=timeout)
        )
        with self._lock:
            # Counted from when it was sent: the server cannot have begun the lease earlier.
            self._sure_until = max(self._sure_until, sent + self.lease - margin(self.lease))
            self.newer = kept.newer
            self._interrupt = self._interrupt or kept.interrupt
            self._cancel = self._cancel or kept.cancel
        if kept.interrupt or kept.cancel:
            self._told.set()
        return kept

    def kept(self, every: Optional[Duration] = None) -> Heartbeat:
        """Keeps the lease from a thread of its own: `with run.kept(): …`."""
        return Heartbeat(self, every)

    def settle(self, ending: Union[str, Ending], *, repeat: Optional[Repeat] = None) -> Settlement:
        """Ends the attempt; for those who claim by themselves. The first ending is the only one: others are refused here."""
        told = Ending(ending) if isinstance(ending, str) else ending
        if not self._decide(told):
            raise LeaseLost(f"{self.run_id} has been settled or handed back by this worker")
        return self._ask(lambda: self._quell.settle(self.run_id, self.token, told, repeat=repeat))

    @property
    def left(self) -> float:
        """Seconds for which the lease is sure by this machine's clock; negative when it is not."""
        return self._sure_until - time.monotonic()

    @property
    def settled(self) -> bool:
        """An ending was decided on."""
        return self._ending is not None

    @property
    def over(self) -> bool:
        """Nothing may be settled any more: it gave way at the gate, was lost, or an ending was decided on."""
        return self._gave_way or self._lost is not None or self.settled

    @property
    def lost(self) -> Optional[str]:
        """Why the run is not this worker's any more, if it is not."""
        return self._lost

    def _decide(self, ending: Ending) -> bool:
        """Fixes what will be settled. Only one ending is ever sent for a token."""
        with self._lock:
            if self._gave_way or self._lost is not None:
                return False
            if self._ending is None:
                self._ending = ending
            return self._ending is ending

    def _refused(self, ending: Ending) -> None:
        """The server did not take this ending, so another one may be decided on."""
        with self._lock:
            if self._ending is ending:
                self._ending = None

    def _stop(self) -> None:
        self._stopping = True
        self._told.set()

    def _unsure(self) -> bool:
        return self._ending is None and self.left <= 0

    def _wanted(self) -> None:
        """As `check`, but leaves a lease that is only unsure to the server, which knows."""
        if self._lost is not None:
            raise LeaseLost(self._lost)
        if self._ending is not None:
            raise LeaseLost(f"{self.run_id} has been settled or handed back by this worker")
        if self._interrupt or self._cancel or self._gave_way:
            who = "an operator cancelled it" if self._cancel else "newer events want to be part of it"
            raise Interrupted(f"{self.run_id} is to stop: {who}")

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        try:
            return call()
        except (StaleToken, AlreadySettled, NotFound) as problem:
            text = f"{self.run_id} is not this worker's any more: {problem.detail}"
            if not self._gave_way:  # That is known: a heartbeat was under way when the gate ended the attempt.
                self._lost = text
                self._told.set()
            raise LeaseLost(text) from problem

    def _finish(self, name: str, made: T) -> T:
        # Also when the run was interrupted meanwhile: what was paid for is worth keeping.
        kept = self._ask(lambda: self._quell.put_step(self.run_id, self.token, name, made))
        # As the server keeps it, also the first time: so every attempt sees the same thing.
        return cast(T, kept.value)
