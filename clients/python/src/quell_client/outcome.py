"""What a handler may answer, and what becomes of it.

A handler that returns has succeeded, and what it returns is the run's result; `Succeeded` says more. It raises `Retry`, `Failed`
or `Release` to say otherwise. Any other exception is unclassified, and the worker's `on_error` decides. All of it is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from .errors import Interrupted, LeaseLost, QuellError, StepUnknown, Superseded
from .shapes import Duration, Ending

# The server keeps the last 4 KiB of an error; more is not worth sending.
_ERROR_CHARACTERS = 4096


class Retry(Exception):
    """Try the run again: after this long, or by the queue's backoff."""

    def __init__(self, error: str = "", *, after: Optional[Duration] = None) -> None:
        super().__init__(error)
        self.error = error
        self.after = after


class Failed(Exception):
    """This can never work: the events go to the dead letter."""

    def __init__(self, error: str = "") -> None:
        super().__init__(error)
        self.error = error


class Release(Exception):
    """Hand the run back as if it had not been claimed: no attempt is lost."""

    def __init__(self, error: str = "") -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True)
class Succeeded:
    """An answer with more than a result: with `if_head` it succeeds only if nothing newer than that has arrived."""

    result: Any = None
    if_head: Optional[int] = None


def ending_of_answer(answer: Any) -> Ending:
    """What is settled for what a handler returned."""
    if isinstance(answer, Succeeded):
        return Ending("succeeded", result=answer.result, if_head=answer.if_head)
    return Ending("succeeded", result=answer)


def ending_of_error(error: BaseException, *, interrupted: bool, cancelled: bool, on_error: str) -> Ending:
    """What is settled for what a handler raised. `interrupted` and `cancelled` are what its heartbeats were told."""
    text = _worded(error)
    if isinstance(error, Retry):
        return Ending("retry", error=error.error or None, retry_after=error.after)
    if isinstance(error, Failed):
        return Ending("failed", error=error.error or None)
    if isinstance(error, Release):
        return Ending("release", error=error.error or None)
    if isinstance(error, Superseded):
        # Only a handler that raises it by itself: the gate has ended its attempt already.
        return Ending("superseded", error=text)
    if cancelled:
        # Any end but success is the cancellation; the server makes it one.
        return Ending("release", error="an operator cancelled it")
    if interrupted or isinstance(error, Interrupted):
        # Its work was not wanted any more, so what it stumbled over does not count.
        return Ending("interrupted")
    if isinstance(error, LeaseLost):
        return Ending("release", error=text)
    if isinstance(error, StepUnknown):
        return Ending("failed", error=text)
    if isinstance(error, QuellError) and error.temporary:
        # The server was away: that says nothing about the work.
        return Ending("retry", error=text)
    return Ending(on_error, error=text)


def _worded(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[-_ERROR_CHARACTERS:]
