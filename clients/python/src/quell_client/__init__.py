"""Quell from Python: send events, work on batches, check what was pushed. Only the standard library is used.

    from quell_client import Quell, Worker

    quell = Quell("http://127.0.0.1:7717")
    quell.append("chat", "customer-7", {"text": "hi"})
    Worker(quell, "chat", lambda run: print(run.key, len(run.events))).run()
"""

from .client import Quell
from .errors import (
    AlreadySettled,
    ApiError,
    CallCancelled,
    Conflict,
    ConnectionFailed,
    Forbidden,
    GaveWay,
    Interrupted,
    InvalidRequest,
    LaneFull,
    LaneNotIdle,
    LeaseLost,
    NotFound,
    NotPulled,
    OverLimit,
    QuellError,
    QueueFull,
    ServerError,
    SignatureError,
    StaleToken,
    StepUnknown,
    Superseded,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownOutcome,
    UnknownQueue,
)
from .heartbeat import Heartbeat
from .outcome import Failed, Release, Retry, Succeeded
from .run import Run
from .shapes import (
    Batch,
    Duration,
    Ending,
    Event,
    Extended,
    NewEvent,
    Receipt,
    Settlement,
    SourceFault,
    Step,
    Window,
)
from .signature import verify
from .transport import Cancel, Repeat
from .worker import Worker

__all__ = [
    "AlreadySettled",
    "ApiError",
    "Batch",
    "CallCancelled",
    "Cancel",
    "Conflict",
    "ConnectionFailed",
    "Duration",
    "Ending",
    "Event",
    "Extended",
    "Failed",
    "Forbidden",
    "GaveWay",
    "Heartbeat",
    "Interrupted",
    "InvalidRequest",
    "LaneFull",
    "LaneNotIdle",
    "LeaseLost",
    "NewEvent",
    "NotFound",
    "NotPulled",
    "OverLimit",
    "Quell",
    "QuellError",
    "QueueFull",
    "Receipt",
    "Release",
    "Repeat",
    "Retry",
    "Run",
    "ServerError",
    "Settlement",
    "SignatureError",
    "SourceFault",
    "StaleToken",
    "Step",
    "StepUnknown",
    "Succeeded",
    "Superseded",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnknownOutcome",
    "UnknownQueue",
    "Window",
    "Worker",
    "verify",
]
