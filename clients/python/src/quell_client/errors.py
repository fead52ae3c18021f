"""What can go wrong with a call, one class for each thing a caller does differently.

The server answers mistakes with problem documents (RFC 9457); `read_problem` makes the right exception of one. Whoever only
wants to know whether to try again looks at `temporary`. Every text says what happened, where, and what to do; none holds a
payload or a token.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional, Sequence, Type

# What is shown of an answer that is no problem document: a proxy's page, say.
_SHOWN_BYTES = 200
# A server that asks for more patience than this is not waited for: the caller decides.
_RETRY_AFTER_MAX = 3600.0


class QuellError(Exception):
    """Anything that this package raises by itself."""

    #: The same call may succeed later. All calls of this package can be repeated: they carry an id or a token.
    temporary = False

    #: The ids of the events that an append was about: sending them again with the same ids is always safe.
    event_ids: Sequence[str] = ()


class ConnectionFailed(QuellError):
    """No whole answer came: nobody knows whether the call was done. Repeat it with the same id or token."""

    temporary = True


class CallCancelled(QuellError):
    """The call was cut short by `Cancel.cancel`; nobody knows whether it was done."""


class ApiError(QuellError):
    """The server said no. `code` is what programs compare, `detail` is for people."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        place: Optional[str] = None,
        retry_after: Optional[float] = None,
    ) -> None:
        where = f" (at {place})" if place else ""
        super().__init__(f"{status} {code}: {detail}{where}")
        self.status = status
        self.code = code
        self.detail = detail
        self.place = place
        #: Seconds, if the server asked for a pause.
        self.retry_after = retry_after


class InvalidRequest(ApiError):
    """The request is not as it should be; `place` names the part that is meant."""


class Unauthorized(ApiError):
    """No token, or one that is not known."""


class Forbidden(ApiError):
    """The token does not allow this."""


class NotFound(ApiError):
    """It does not exist, or is somebody else's."""


class UnknownQueue(NotFound):
    """The queue is not configured on the server."""


class Conflict(ApiError):
    """The id is known with another payload."""


class LaneNotIdle(ApiError):
    """`only_if_idle` was asked for, and the key has something to do."""


class NotPulled(ApiError):
    """The server handles this queue itself: set `handler = "pull"`."""


class StaleToken(ApiError):
    """The token does not hold the run any more: its lease ran out, and somebody else has it. What was done counts for nothing."""


class AlreadySettled(ApiError):
    """The attempt was ended before, in another way."""


class TooLarge(ApiError):
    """Over a limit of size."""


class OverLimit(ApiError):
    """Over another limit."""


class TooManyRequests(ApiError):
    """Later: nothing was done."""

    temporary = True


class LaneFull(TooManyRequests):
    """The key has too many events that wait."""


class QueueFull(TooManyRequests):
    """The queue has too many events that wait."""


class Unavailable(ApiError):
    """The server or its store is away for the moment: nothing was done."""

    temporary = True


class UnknownOutcome(Unavailable):
    """The store cannot say whether it was done: repeat it with the same id or token."""


class ServerError(ApiError):
    """The server or its store is not as it should be; its log says more."""


class GaveWay(QuellError):
    """The attempt is over, because its work is not wanted any more. Nothing is settled for it, and no attempt is lost."""


class Superseded(GaveWay):
    """Newer events have arrived: they and this batch are the next one."""


class Interrupted(GaveWay):
    """Newer events or an operator want the run to stop."""


class LeaseLost(QuellError):
    """The run is not this worker's any more; whatever its handler does counts for nothing."""


class StepUnknown(QuellError):
    """An earlier attempt began a step that must not be done twice, and nobody knows whether it did it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"step {name!r} was begun by an earlier attempt that left no result: it may have happened; "
            "ask the other side or a person, then store a value for it or fail"
        )
        self.name = name


class SignatureError(QuellError):
    """A delivery that is not proven. `reason` is a word for programs; strangers should be told nothing but 401."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


_BY_CODE: Dict[str, Type[ApiError]] = {
    "invalid": InvalidRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "unknown-queue": UnknownQueue,
    "method-not-allowed": InvalidRequest,
    "too-slow": Unavailable,
    "conflict": Conflict,
    "lane-not-idle": LaneNotIdle,
    "not-pulled": NotPulled,
    "stale-token": StaleToken,
    "already-settled": AlreadySettled,
    "too-large": TooLarge,
    "over-limit": OverLimit,
    "lane-full": LaneFull,
    "queue-full": QueueFull,
    "too-many-requests": TooManyRequests,
    "unavailable": Unavailable,
    "unknown-outcome": UnknownOutcome,
    "too-many-connections": Unavailable,
}


def read_problem(status: int, headers: Mapping[str, str], body: bytes) -> QuellError:
    """The exception for an answer that is no success. Pure."""
    document = _document(body)
    code = str(document.get("code") or f"http-{status}")
    detail = str(document.get("detail") or _shown(body) or "the answer has no text")
    if code == "superseded":
        return Superseded(detail)
    place = document.get("place")
    kind = _BY_CODE.get(code) or _by_status(status)
    return kind(status, code, detail, None if place is None else str(place), _retry_after(headers))


def _by_status(status: int) -> Type[ApiError]:
    # A proxy in front answers in its own words: 502 and 504 mean that nobody knows what the server did.
    if status in (502, 504):
        return UnknownOutcome
    if status == 503:
        return Unavailable
    if status == 429:
        return TooManyRequests
    known: Dict[int, Type[ApiError]] = {401: Unauthorized, 403: Forbidden, 404: NotFound, 413: TooLarge}
    return known.get(status, ServerError if status >= 500 else InvalidRequest)


def _document(body: bytes) -> Dict[str, Any]:
    try:
        read = json.loads(body)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _shown(body: bytes) -> str:
    text = body[:_SHOWN_BYTES].decode("utf-8", "replace")
    return " ".join(text.split())


def _retry_after(headers: Mapping[str, str]) -> Optional[float]:
    text = headers.get("retry-after", "").strip()
    return min(float(text), _RETRY_AFTER_MAX) if text.isascii() and text.isdigit() else None
