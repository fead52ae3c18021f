"""`Worker`: claims, keeps leases, calls a handler and settles, until it is told to stop.

One thread waits for work in a long poll and takes as many runs as there is room for; each run gets a thread for its handler and
one for its heartbeat. The server hands out a key to one worker at a time, so order per key needs nothing here.

What is not known is never guessed: a claim whose answer is lost is repeated with its `claim_id`, a settlement with its token,
until the server has spoken. Stopped, a worker takes nothing more, gives its handlers time, and hands back what still runs; the
server refunds those attempts.
"""

from __future__ import annotations

import inspect
import logging
import os
import queue
import secrets
import signal
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Literal, Optional, Sequence, Tuple, Union

from .client import CLAIM_MAX, WAIT_MAX, Quell
from .errors import ApiError, CallCancelled, GaveWay, LeaseLost, QuellError, Superseded
from .outcome import Failed, Release, Retry, ending_of_answer, ending_of_error
from .run import Run
from .shapes import Duration, Ending, milliseconds
from .transport import Cancel, Repeat

log = logging.getLogger("quell_client")

# The server remembers the answer to a settlement for an hour at least; after that repeating it could only be refused.
_SETTLE_PATIENCE = 3600.0
# What is handed back at a stop is handed back in moments, or its lease has to do.
_HAND_BACK_PATIENCE = 3.0
# An empty answer that comes at once is that of a server that is stopping.
_EMPTY_PAUSE = 1.0
# How often a stop looks whether it has been told to hurry: a signal handler may not touch a lock.
_LOOK_EVERY = 0.1

Handler = Callable[[Run], Any]


class Worker:
    """Works on queues that have `handler = "pull"`.

    `run()` works until SIGTERM or SIGINT; `start()` and `stop()` are for those who have a main loop of their own.
    """

    def __init__(
        self,
        quell: Quell,
        queues: Union[str, Sequence[str]],
        handler: Handler,
        *,
        concurrency: int = 1,
        lease: Optional[Duration] = None,
        wait: Duration = 30,
        tenant: Optional[str] = None,
        name: Optional[str] = None,
        heartbeat: Optional[Duration] = None,
        grace: Duration = 25,
        on_error: Literal["retry", "failed"] = "retry",
    ) -> None:
        """`concurrency` runs at once, each of another key. `lease` is in place of the queue's; `heartbeat` in place of a third of it,
        and as often a run learns that it is interrupted. `grace` is for handlers when the worker stops. `on_error` says what an
        exception that is not `Retry`, `Failed` or `Release` means: "retry" or "failed".
        """
        if not 1 <= concurrency:
            raise ValueError("a worker does at least one run at once")
        if inspect.iscoroutinefunction(handler):
            raise TypeError("a handler is a plain function: call asyncio.run in it for what is asynchronous")
        if on_error not in ("retry", "failed"):
            raise ValueError(f'on_error is "retry" or "failed", not {on_error!r}')
        self._quell = quell
        self._queues: List[str] = [queues] if isinstance(queues, str) else list(queues)
        self._handler = handler
        self._concurrency = concurrency
        self._lease, self._tenant, self._heartbeat, self._on_error = lease, tenant, heartbeat, on_error
        self._wait = min(milliseconds(wait) / 1000, WAIT_MAX)
        self._grace = milliseconds(grace) / 1000
        # New at every start: a worker that comes back is another one.
        self.name = name or f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(3)}"
        self._poll = Cancel()
        self._settling = Cancel()
        self._changed = threading.Condition()
        self._running: Dict[Tuple[str, int], Run] = {}
        self._loop: Optional[threading.Thread] = None
        self._failure: Optional[BaseException] = None
        # Signals and the end of the loop are put here; `put` of this queue is safe in a signal handler.
        self._mail: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._hurry = False

    def run(self) -> None:
        """Works until SIGTERM or SIGINT (a second one hands everything back at once), then stops. Raises what ended the loop."""
        # Before the first claim: a signal that comes meanwhile must not end the process with a lease in its hand.
        restore = self._listen()
        try:
            self.start()
            # Looked at again and again: a signal that another thread was given wakes nobody who waits without an end.
            while True:
                try:
                    self._mail.get(timeout=_LOOK_EVERY)
                    break
                except queue.Empty:
                    pass
            self.stop()
        finally:
            restore()

    def start(self) -> None:
        """Begins to work in threads of its own."""
        if self._loop is not None:
            raise RuntimeError("a worker is started once")
        self._loop = threading.Thread(target=self._claim_loop, name="quell-claims", daemon=True)
        self._loop.start()

    def request_stop(self) -> None:
        """Takes nothing more from here on, and lets handlers know; does not wait. A handler may call it."""
        self._mail.put("asked")
        self._poll.cancel()
        with self._changed:
            self._changed.notify_all()

    def stop(self, grace: Optional[Duration] = None) -> None:
        """Takes nothing more, waits for handlers, hands back what still runs. Raises what had ended the loop, if it failed."""
        self.request_stop()
        patience = self._grace if grace is None else milliseconds(grace) / 1000
        until = time.monotonic() + patience
        if self._loop is not None:
            self._loop.join(_HAND_BACK_PATIENCE)
        self._tell_handlers()
        with self._changed:
            while self._running and not self._hurry and time.monotonic() < until:
                self._changed.wait(_LOOK_EVERY)
            left = list(self._running.values())
        self._hand_back(left)
        # Settlements that could not be delivered are given up: their runs come back after their lease.
        self._settling.cancel()
        if self._failure is not None:
            raise self._failure

    # The loop

    def _claim_loop(self) -> None:
        try:
            while (room := self._room()) > 0:
                asked = time.monotonic()
                runs = self._claim(min(room, CLAIM_MAX))
                for run in runs:
                    self._dispatch(run)
                if not runs and time.monotonic() - asked < min(self._wait, _EMPTY_PAUSE) / 2:
                    self._poll.wait(_EMPTY_PAUSE)
        except CallCancelled:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            # Only now: what a handler hands back would otherwise be taken by the last claim.
            self._tell_handlers()
            self._mail.put("ended")

    def _tell_handlers(self) -> None:
        with self._changed:
            for run in self._running.values():
                run._stop()

    def _room(self) -> int:
        """Waits until there is room for a run; none when the worker stops."""
        with self._changed:
            while not self._poll.cancelled:
                room = self._concurrency - len(self._running)
                if room > 0:
                    return room
                self._changed.wait()
        return 0

    def _claim(self, room: int) -> List[Run]:
        claim_id = secrets.token_hex(16)
        wish: Dict[str, Any] = dict(
            worker=self.name, lease=self._lease, tenant=self._tenant, claim_id=claim_id, queues=self._queues
        )
        repeat = Repeat(patience=None, cancel=self._poll, told=self._tell)
        try:
            return self._quell.claim(max=room, wait=self._wait, repeat=repeat, **wish)
        except CallCancelled:
            # The server may have handed something out in this moment; whoever named its claim has to give it back.
            try:
                taken = self._quell.claim(max=1, wait=0, repeat=Repeat(_HAND_BACK_PATIENCE), **wish)
                self._hand_back(taken)
            except QuellError as problem:
                log.warning("nobody knows whether a last claim got something; if so, its lease has to do: %s", problem)
            raise

    @staticmethod
    def _tell(problem: QuellError, pause: float) -> None:
        log.warning("claiming again in %.1f s: %s", pause, problem)

    # One run

    def _dispatch(self, run: Run) -> None:
        with self._changed:
            stopping = self._poll.cancelled
            if not stopping:
                self._running[run.run_id, run.token] = run
        if stopping:
            self._hand_back([run])
            return
        threading.Thread(target=self._work, args=(run,), name=f"quell-{run.run_id}", daemon=True).start()

    def _work(self, run: Run) -> None:
        try:
            if run.left < run.lease / 2 and not self._renewed(run):
                return
            with run.kept(self._heartbeat):
                ending = self._handle(run)
                if run.lost is not None:
                    log.warning("what was done for %s counts for nothing: %s", run.run_id, run.lost)
                elif not run.over:
                    self._settle(run, ending)
        finally:
            with self._changed:
                del self._running[run.run_id, run.token]
                self._changed.notify_all()

    @staticmethod
    def _renewed(run: Run) -> bool:
        """Renews a lease that arrived late, before its handler starts. False when somebody else has the run."""
        try:
            run.extend(repeat=Repeat(0.0))
        except LeaseLost as problem:
            log.warning("%s", problem)
            return False
        except QuellError as problem:
            log.warning("the lease of %s could not be renewed: %s", run.run_id, problem)
        return True

    def _handle(self, run: Run) -> Ending:
        try:
            ending = ending_of_answer(self._handler(run))
        except BaseException as error:  # Also `SystemExit`: a thread that ends in silence would leave the run to its lease.
            ending = ending_of_error(
                error, interrupted=run._interrupt, cancelled=run.cancelled, on_error=self._on_error
            )
            if not run.over:
                self._tell_end(run, ending, error)
        ending.usage, ending.source_fault, ending.source_unused = run.usage, run.source_fault, run.source_unused
        return ending

    @staticmethod
    def _tell_end(run: Run, ending: Ending, error: BaseException) -> None:
        """What the handler said on purpose is a line; what it did not say on purpose comes with its trace."""
        meant = isinstance(error, (Retry, Failed, Release, GaveWay))
        log.log(
            logging.INFO if meant and not isinstance(error, Failed) else logging.WARNING,
            "%s of %s/%s, attempt %d: %s: %s",
            *(run.run_id, run.queue, run.key, run.attempt, ending.outcome, ending.error or "no reason given"),
            exc_info=None if meant else error,
        )

    def _settle(self, run: Run, ending: Ending) -> None:
        repeat = Repeat(_SETTLE_PATIENCE, self._settling, lambda problem, pause: self._tell_settle(run, problem, pause))
        try:
            run.settle(ending, repeat=repeat)
        except Superseded:
            log.info("%s gave way to newer events", run.run_id)
        except LeaseLost as problem:
            log.warning("what was done for %s counts for nothing: %s", run.run_id, problem)
        except (ApiError, TypeError, ValueError) as problem:
            # A result that is no JSON or too large, say. It was not settled, and the work would end so each time.
            refusal = f"the outcome `{ending.outcome}` was refused: {problem}"
            log.error("%s: %s", run.run_id, refusal)
            run._refused(ending)
            if ending.outcome != "failed" or ending.usage or ending.source_fault:
                self._settle(run, Ending("failed", error=refusal))
        except QuellError as problem:
            log.error("%s could not be settled and waits for its lease: %s", run.run_id, problem)

    @staticmethod
    def _tell_settle(run: Run, problem: QuellError, pause: float) -> None:
        log.warning("settling %s again in %.1f s: %s", run.run_id, pause, problem)

    def _hand_back(self, runs: List[Run]) -> None:
        patience = _HAND_BACK_PATIENCE
        for run in runs:
            ending = Ending("release", error="the worker is stopping")
            if not run._decide(ending):
                continue  # It ended in this moment.
            try:
                run.settle(ending, repeat=Repeat(patience))
            except LeaseLost:
                pass
            except QuellError as problem:
                log.warning("%s could not be handed back and waits for its lease: %s", run.run_id, problem)
                if problem.temporary:
                    patience = 0.0  # The server is away: waiting for each run would only make the stop longer.

    # Signals

    def _listen(self) -> Callable[[], None]:
        """Stops at SIGTERM and SIGINT. Elsewhere than in the main thread Python lets nobody listen."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        heard: List[int] = []

        def hear(number: int, _frame: object) -> None:
            # Nothing here may take a lock: the main thread may hold it. A second signal may come in the middle of
            # this very function, so each is noted first and counted afterwards: whichever call counts last sees both.
            heard.append(number)
            if len(heard) > 1:
                self._hurry = True
            self._mail.put("signal")

        for number in before:
            signal.signal(number, hear)

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore
