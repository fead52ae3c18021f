"""Keeps the lease of one run while its handler works.

A thread for each run: a call that hangs holds up nobody else's heartbeat. A renewal that fails is tried again soon, so that
several tries fit into what is left of the lease; one that is refused is the end, because somebody else has the run.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Optional

from .errors import LeaseLost, QuellError
from .shapes import Duration, milliseconds
from .transport import Repeat

if TYPE_CHECKING:
    from .run import Run

log = logging.getLogger("quell_client")

# A sign of life is sent at least this often, whatever the lease: people look at it.
_EVERY_MAX = 20.0
# Answers of a healthy server take milliseconds; a shorter limit would make a slow one look dead.
_TIMEOUT_MIN = 1.0


def every(lease: float) -> float:
    """Seconds between two renewals: a third of the lease leaves room for two that fail."""
    return min(lease / 3, _EVERY_MAX)


def first_after(left: float, lease: float, period: float) -> float:
    """Seconds until the first renewal, when this much is left of the lease: at once for a claim that arrived late. Pure."""
    return max(0.0, min(period, left - (lease - period)))


class Heartbeat:
    """Started by `with`; ends with it, without waiting for a renewal that is under way."""

    def __init__(self, run: Run, period: Optional[Duration] = None) -> None:
        self._run = run
        self._period = every(run.lease) if period is None else milliseconds(period) / 1000
        self._done = threading.Event()

    def __enter__(self) -> Heartbeat:
        threading.Thread(target=self._beat, name=f"quell-beat-{self._run.run_id}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _beat(self) -> None:
        run, once = self._run, Repeat(patience=0.0)
        timeout = max(run.lease / 3, _TIMEOUT_MIN)
        pause = first_after(run.left, run.lease, self._period)
        # Also beside a handler that goes on after its run was handed back or gave way: there is no lease to keep.
        while not self._done.wait(pause) and not run.over:
            try:
                run.extend(repeat=once, timeout=timeout)
                pause = self._period
            except LeaseLost as problem:
                if run.lost is not None and not run.settled:
                    log.warning("%s", problem)
                return
            except QuellError as problem:
                pause = min(run.lease / 20, 1.0)
                if not self._done.is_set():
                    log.warning("the lease of %s could not be renewed, again in %.2f s: %s", run.run_id, pause, problem)
