"""Everything that is decided without a server: pauses, endings, problems, paths."""

import json
import os
import signal
import sys
import unittest
from datetime import timedelta
from types import FrameType
from typing import Any, Callable

from quell_client import (
    ApiError,
    ConnectionFailed,
    Ending,
    Failed,
    Interrupted,
    LeaseLost,
    Quell,
    QueueFull,
    Release,
    Retry,
    SourceFault,
    StepUnknown,
    Superseded,
    TooManyRequests,
    Unavailable,
    UnknownOutcome,
    Worker,
)
from quell_client.client import _part
from quell_client.errors import read_problem
from quell_client.heartbeat import every, first_after
from quell_client.outcome import ending_of_error
from quell_client.run import margin
from quell_client.shapes import milliseconds, read_time
from quell_client.transport import pause_before


class Decisions(unittest.TestCase):
    def test_pauses_double_up_to_a_bound_and_a_wish_of_the_server_wins(self) -> None:
        lost = ConnectionFailed("lost")
        self.assertEqual([pause_before(n, lost, 0.999999) < 0.1 * 2**n for n in range(5)], [True] * 5)
        self.assertEqual([pause_before(n, lost, 0.0) for n in (0, 1, 2)], [0.05, 0.1, 0.2])
        self.assertLessEqual(pause_before(10_000, lost, 0.999), 5.0)
        full = TooManyRequests(429, "too-many-requests", "later", None, 7.0)
        self.assertEqual(pause_before(0, full, 0.5), 7.0)

    def test_a_problem_document_becomes_its_exception(self) -> None:
        body = json.dumps({"code": "queue-full", "detail": "too much waits", "place": "[3]"}).encode()
        problem = read_problem(429, {"retry-after": "2"}, body)
        assert isinstance(problem, QueueFull)
        self.assertEqual(str(problem), "429 queue-full: too much waits (at [3])")
        self.assertEqual((problem.retry_after, problem.temporary), (2.0, True))
        self.assertIsInstance(read_problem(409, {}, b'{"code":"superseded"}'), Superseded)
        unknown = read_problem(418, {}, b'{"code":"a-new-code","detail":"x"}')
        assert isinstance(unknown, ApiError)
        self.assertEqual((unknown.code, unknown.temporary), ("a-new-code", False))

    def test_what_a_proxy_answers_is_told_and_may_be_temporary(self) -> None:
        for status, kind in ((502, UnknownOutcome), (504, UnknownOutcome), (503, Unavailable)):
            problem = read_problem(status, {}, b"<html>\n bad  gateway </html>")
            self.assertIs(type(problem), kind)
            self.assertIn("<html> bad gateway </html>", str(problem))
            self.assertTrue(problem.temporary)
        self.assertFalse(read_problem(500, {"retry-after": "soon"}, b"[]").temporary)

    def test_every_exception_of_a_handler_has_one_ending(self) -> None:
        def end(error: BaseException, **told: Any) -> Ending:
            flags = dict({"interrupted": False, "cancelled": False, "on_error": "retry"}, **told)
            return ending_of_error(error, **flags)

        self.assertEqual(end(Retry("busy", after=2)), Ending("retry", error="busy", retry_after=2))
        self.assertEqual(end(Retry()).error, None)
        self.assertEqual(end(Failed("no")), Ending("failed", error="no"))
        self.assertEqual(end(Release()), Ending("release"))
        self.assertEqual(end(ValueError("x")), Ending("retry", error="ValueError: x"))
        self.assertEqual(end(SystemExit(1), on_error="failed"), Ending("failed", error="SystemExit: 1"))
        self.assertEqual(end(ValueError("x"), interrupted=True), Ending("interrupted"))
        self.assertEqual(end(Failed("no"), interrupted=True).outcome, "failed", "what it says itself counts")
        self.assertEqual(end(Interrupted("x")).outcome, "interrupted")
        self.assertEqual(end(Interrupted("x"), cancelled=True).outcome, "release")
        self.assertEqual(end(LeaseLost("unsure")).outcome, "release")
        self.assertEqual(end(StepUnknown("send")).outcome, "failed")
        self.assertEqual(end(ConnectionFailed("away"), on_error="failed").outcome, "retry", "no fault of the work")
        self.assertEqual(len(end(ValueError("x" * 9999)).error or ""), 4096)

    def test_an_ending_is_sent_with_what_it_has_and_nothing_else(self) -> None:
        self.assertEqual(Ending("succeeded").to_wire(5), {"token": 5, "outcome": "succeeded"})
        fault = SourceFault("too_many_requests", retry_after=timedelta(seconds=2))
        told = Ending("retry", error="e", retry_after=0.5, usage={"n": 1}, source_fault=fault, source_unused=True)
        self.assertEqual(
            told.to_wire(5),
            {
                "token": 5,
                "outcome": "retry",
                "error": "e",
                "retry_after_ms": 500,
                "usage": {"n": 1},
                "source_fault": {"kind": "too_many_requests", "retry_after_ms": 2000},
                "source_unused": True,
            },
        )

    def test_heartbeats_come_at_a_third_and_at_once_for_a_claim_that_came_late(self) -> None:
        self.assertEqual([every(lease) for lease in (60, 600, 9)], [20, 20, 3])
        self.assertEqual(first_after(left=60, lease=60, period=20), 20)
        self.assertEqual(first_after(left=45, lease=60, period=20), 5)
        self.assertEqual(first_after(left=1, lease=60, period=20), 0)
        for lease in (0.1, 1.0, 60.0, 86400.0):
            self.assertLess(margin(lease) + every(lease), lease, "a heartbeat fits before it")

    def test_durations_times_and_names_are_written_as_the_server_reads_them(self) -> None:
        self.assertEqual([milliseconds(d) for d in (0, 1.5, timedelta(minutes=1))], [0, 1500, 60000])
        for wrong in (-1, float("nan"), float("inf")):
            with self.assertRaises(ValueError):
                milliseconds(wrong)
        self.assertEqual(read_time("2026-11-15T17:03:22.387Z").isoformat(), "2026-11-15T17:03:22.387000+00:00")
        self.assertEqual([_part(text) for text in ("a/b c", "..", "é", "run_1.2")], ["a%2Fb%20c", "%2E%2E", "%C3%A9", "run_1.2"])


class Signals(unittest.TestCase):
    def test_a_second_signal_hurries_also_when_it_comes_while_the_first_is_heard(self) -> None:
        # Before every line of the function that hears, and once after its last.
        told = [self.hurries_after(line) for line in range(6)]
        self.assertGreaterEqual(sum(inside for inside, _ in told), 3)
        self.assertEqual([hurries for _, hurries in told], [True] * 6)

    @staticmethod
    def hurries_after(line: int) -> "tuple[bool, bool]":
        """Whether the second signal came inside the function that heard the first, and whether the worker hurries."""
        worker = Worker(Quell("http://127.0.0.1:1"), "jobs", lambda run: None)
        lines = 0

        def trace(frame: FrameType, event: str, _argument: object) -> "Callable[..., Any] | None":
            nonlocal lines
            if frame.f_code.co_name != "hear":
                return None
            if event == "line":
                lines += 1
                if lines == line + 1:
                    os.kill(os.getpid(), signal.SIGINT)
            return trace

        restore = worker._listen()
        try:
            sys.settrace(trace)
            os.kill(os.getpid(), signal.SIGTERM)
            sys.settrace(None)
            inside = lines > line
            if not inside:
                os.kill(os.getpid(), signal.SIGINT)
        finally:
            sys.settrace(None)
            restore()
        return inside, worker._hurry
