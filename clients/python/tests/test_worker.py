"""Work out: claims, leases, steps, the gate and every way a run can end."""

import threading
import time
import urllib.request
from typing import Any, Callable, Dict, List, Optional, Tuple

from quell_client import (
    AlreadySettled,
    Failed,
    Interrupted,
    LeaseLost,
    NotPulled,
    Quell,
    Release,
    Retry,
    Run,
    StepUnknown,
    Succeeded,
    Superseded,
    UnknownQueue,
    Worker,
)
from support import LossyProxy, ServerCase, until

Handler = Callable[[Run], Any]


class Working(ServerCase):
    def work(self, queue: str, handler: Handler, *, quell: Optional[Quell] = None, **settings: Any) -> Worker:
        """A worker in threads of this process; stopped at the end of the test."""
        settings.setdefault("wait", 5)
        worker = Worker(quell or self.quell, queue, handler, **settings)
        worker.start()
        self.addCleanup(worker.stop, 0)
        return worker

    def test_a_burst_is_one_batch(self) -> None:
        seen: List[Run] = []
        receipts = [self.quell.append("chat", "burst", {"n": n}) for n in range(5)]
        self.work("chat", seen.append)
        run = self.ended(str(receipts[0].run_id))
        self.assertEqual((run["state"], run["fired_by"], run["events"]), ("succeeded", "quiet", 5))
        [only] = [one for one in seen if one.key == "burst"]
        self.assertEqual([event.payload["n"] for event in only.events], [0, 1, 2, 3, 4])
        self.assertEqual([event.id for event in only.events], [receipt.event_id for receipt in receipts])
        self.assertEqual((only.attempt, only.queue, only.tenant, only.is_last_attempt), (1, "chat", "", False))

    def test_keys_are_worked_on_at_once_and_each_in_its_order(self) -> None:
        keys, each = [f"order-{n}" for n in range(6)], 8
        lock = threading.Lock()
        busy: Dict[str, int] = {}
        seen: Dict[str, List[int]] = {key: [] for key in keys}
        together = [0]

        def handle(run: Run) -> None:
            with lock:
                busy[run.key] = busy.get(run.key, 0) + 1
                self.assertEqual(busy[run.key], 1, "one worker at a time")
                together[0] = max(together[0], sum(busy.values()))
            time.sleep(0.02)
            with lock:
                seen[run.key].extend(event.payload for event in run.events)
                busy[run.key] -= 1

        self.work("jobs", handle, concurrency=4)
        for n in range(each):
            for key in keys:
                self.quell.append("jobs", key, n)
        until("all events", lambda: sum(map(len, seen.values())) == len(keys) * each)
        self.assertEqual(seen, {key: list(range(each)) for key in keys})
        self.assertGreater(together[0], 1, "several keys at once")
        self.assertLessEqual(together[0], 4)

    def test_heartbeats_keep_a_lease_that_is_shorter_than_the_work(self) -> None:
        attempts: List[int] = []

        def handle(run: Run) -> None:
            attempts.append(run.attempt)
            self.assertFalse(run.wait(7), "nobody wants it to stop")
            self.assertGreater(run.left, 0)

        self.work("jobs", handle, lease=3, concurrency=2)
        receipt = self.quell.append("jobs", "long", 1)
        run = self.ended(str(receipt.run_id))
        self.assertEqual((run["state"], run["attempts"], attempts), ("succeeded", 1, [1]))

    def test_a_retried_run_reuses_what_its_step_has_stored(self) -> None:
        paid: List[int] = []

        def pay(run: Run) -> Tuple[str, Dict[str, None]]:
            paid.append(run.attempt)
            return ("one", {"a": None})

        def handle(run: Run) -> object:
            answer = run.step("paid/call", lambda: pay(run))
            nothing = run.step("nothing", lambda: None)
            if run.attempt == 1:
                raise RuntimeError("after it was paid")
            return [answer, nothing, run.step_key("paid/call")]

        self.work("jobs", handle)
        receipt = self.quell.append("jobs", "steps", 1)
        run = self.ended(str(receipt.run_id))
        self.assertEqual((run["state"], run["attempts"], paid), ("succeeded", 2, [1]))
        self.assertEqual(run["result"], [["one", {"a": None}], None, f"{run['id']}/0/paid/call"])

    def test_a_step_that_must_not_be_done_twice_is_unknown_after_a_failure(self) -> None:
        sent: List[int] = []

        def send(run: Run) -> None:
            sent.append(run.attempt)
            raise Retry("the connection broke while it was sent", after=0.01)

        def handle(run: Run) -> None:
            run.step_once("first", lambda: "good")
            self.assertEqual(run.step_once("first", lambda: "bad"), "good")
            run.step_once("send", lambda: send(run))

        worker = self.work("jobs", handle)
        run = self.ended(str(self.quell.append("jobs", "once", 1).run_id))
        self.assertEqual((run["state"], run["attempts"], sent), ("failed", 2, [1]))
        self.assertIn("may have happened", run["error"])
        worker.stop()

        def decide(run: Run) -> object:
            try:
                return run.step_once("send", lambda: send(run))
            except StepUnknown as unknown:
                return f"a person looks after {unknown.name}"

        self.work("jobs", decide)
        run = self.ended(str(self.quell.append("jobs", "once", 2).run_id))
        self.assertEqual((run["state"], run["result"], sent), ("succeeded", "a person looks after send", [1, 1]))

    def test_a_retry_comes_after_what_the_handler_asked_for(self) -> None:
        began: List[float] = []

        def handle(run: Run) -> None:
            began.append(time.monotonic())
            if run.attempt == 1:
                raise Retry("busy", after=1.5)

        self.work("jobs", handle)
        run = self.ended(str(self.quell.append("jobs", "later", 1).run_id))
        self.assertEqual((run["state"], run["attempts"], run["retries"]), ("succeeded", 2, 1))
        self.assertGreaterEqual(began[1] - began[0], 1.4)

    def test_a_failed_run_is_in_the_dead_letter_with_its_text(self) -> None:
        def handle(run: Run) -> None:
            raise Failed("no such article")

        self.work("jobs", handle)
        receipt = self.quell.append("jobs", "dead", {"article": "?"})
        run = self.ended(str(receipt.run_id))
        self.assertEqual((run["state"], run["attempts"]), ("failed", 1))
        dead = self.quell.request("GET", "/v1/dead?queue=jobs")["items"]
        [mine] = [one for one in dead if one["key"] == "dead"]
        self.assertEqual((mine["id"], mine["error"]), (receipt.run_id, "no such article"))

    def test_an_exception_is_tried_again_until_the_attempts_are_used_up_or_fails_at_once(self) -> None:
        def handle(run: Run) -> None:
            raise KeyError("text")

        worker = self.work("jobs", handle)
        run = self.ended(str(self.quell.append("jobs", "raises", 1).run_id))
        self.assertEqual((run["state"], run["attempts"], run["error"]), ("failed", 3, "KeyError: 'text'"))
        worker.stop()
        self.work("jobs", handle, on_error="failed")
        run = self.ended(str(self.quell.append("jobs", "raises", 2).run_id))
        self.assertEqual((run["state"], run["attempts"]), ("failed", 1))

    def test_results_and_usage_are_kept_and_what_is_no_result_is_told(self) -> None:
        def handle(run: Run) -> object:
            run.usage["tokens"] = 512
            return {"good": [1, 2], "huge": "x" * (1 << 20), "bad": object(), "said": Succeeded("yes")}[run.key]

        self.work("jobs", handle, concurrency=4)
        runs = {key: self.quell.append("jobs", key, 1).run_id for key in ("good", "huge", "bad", "said")}
        ends = {key: self.ended(str(run)) for key, run in runs.items()}
        self.assertEqual((ends["good"]["result"], ends["good"]["usage"]), ([1, 2], {"tokens": 512}))
        self.assertEqual(ends["said"]["result"], "yes")
        for key in ("huge", "bad"):
            self.assertEqual((ends[key]["state"], ends[key]["attempts"]), ("failed", 1), key)
            self.assertIn("the outcome `succeeded` was refused", ends[key]["error"])

    def test_newer_events_interrupt_a_run_and_it_starts_over_with_them(self) -> None:
        batches: List[List[int]] = []
        began = threading.Event()

        def handle(run: Run) -> object:
            batches.append([event.payload for event in run.events])
            if len(batches) == 1:
                began.set()
                self.assertTrue(run.wait(30), "it is told")
                self.assertTrue(run.interrupted)
                self.assertFalse(run.cancelled)
                with self.assertRaises(Interrupted):
                    run.step("late", lambda: self.fail("not wanted any more"))
                run.check()
            return len(run.events)

        self.work("cut", handle, heartbeat=0.1)
        receipt = self.quell.append("cut", "ada", 1)
        self.assertTrue(began.wait(30))
        self.quell.append("cut", "ada", 2)
        run = self.ended(str(receipt.run_id))
        self.assertEqual((run["state"], run["result"], batches), ("succeeded", 2, [[1], [1, 2]]))
        self.assertEqual((run["attempts"], run["interrupts"]), (1, 1), "the attempt was given back")

    def test_the_gate_supersedes_a_run_that_newer_events_have_met(self) -> None:
        batches: List[List[int]] = []
        met: List[str] = []

        def handle(run: Run) -> None:
            batches.append([event.payload for event in run.events])
            if len(batches) == 1:
                self.quell.append("gate", "ada", 2)
                try:
                    run.hold()
                except Superseded:
                    met.append("superseded")
                    self.assertTrue(run.interrupted)
                    return  # Whatever it answers, the attempt is over.
            run.hold()
            run.hold(anyway=True)
            met.append("held")

        self.work("gate", handle)
        receipt = self.quell.append("gate", "ada", 1)
        run = self.ended(str(receipt.run_id))
        self.assertEqual((run["state"], run["attempts"], batches), ("succeeded", 1, [[1], [1, 2]]))
        self.assertEqual(met, ["superseded", "held"])

    def test_success_can_be_made_to_depend_on_nothing_newer(self) -> None:
        def handle(run: Run) -> Succeeded:
            if len(run.events) == 1:
                self.quell.append("gate", "bob", 2)
            return Succeeded(len(run.events), if_head=run.head_seq)

        self.work("gate", handle)
        run = self.ended(str(self.quell.append("gate", "bob", 1).run_id))
        self.assertEqual((run["state"], run["result"], run["attempts"]), ("succeeded", 2, 1))

    def test_an_operator_can_cancel_a_run(self) -> None:
        began = threading.Event()

        def handle(run: Run) -> None:
            began.set()
            while not run.wait(30):
                pass
            self.assertTrue(run.cancelled)
            run.check()

        self.work("jobs", handle, heartbeat=0.1)
        receipt = self.quell.append("jobs", "stop-it", 1)
        self.assertTrue(began.wait(30))
        self.quell.request("POST", f"/v1/runs/{receipt.run_id}/cancel", {})
        self.assertEqual(self.ended(str(receipt.run_id))["state"], "cancelled")

    def test_a_handler_may_hand_its_run_back(self) -> None:
        seen: List[int] = []

        def handle(run: Run) -> None:
            seen.append(run.attempt)
            if len(seen) == 1:
                raise Release("not here")

        self.work("jobs", handle)
        run = self.ended(str(self.quell.append("jobs", "back", 1).run_id))
        self.assertEqual((run["state"], run["attempts"], run["claims"], seen), ("succeeded", 1, 2, [1, 1]))

    def test_a_run_whose_lease_was_lost_counts_for_nothing(self) -> None:
        receipt = self.quell.append("jobs", "lost", 1)
        [late] = self.claimed("jobs", lease=0.1)
        until("the end of its lease", lambda: late.interrupted)
        with self.assertRaises(LeaseLost):
            late.check()
        [next] = self.claimed("jobs", lease=30)
        self.assertEqual((next.run_id, next.attempt), (late.run_id, 2))
        self.assertGreater(next.token, late.token)
        for refused in (late.extend, late.hold, lambda: late.settle("succeeded"), lambda: late.step("x", lambda: 1)):
            with self.assertRaises(LeaseLost):
                refused()
        self.assertIn("not this worker's any more", str(late.lost))
        self.assertEqual(next.settle("succeeded").state, "succeeded")
        with self.assertRaises(AlreadySettled):
            self.quell.settle(next.run_id, next.token, "failed")
        self.assertTrue(self.quell.settle(next.run_id, next.token, "succeeded").repeated)
        self.assertEqual(self.ended(str(receipt.run_id))["attempts"], 2)

    def claimed(self, queue: str, **settings: Any) -> List[Run]:
        runs: List[Run] = until("a run", lambda: self.quell.claim(queue, wait=5, **settings))
        return runs

    def test_a_claim_that_is_repeated_gets_what_it_got(self) -> None:
        self.quell.append("jobs", "named", 1)
        wish: Dict[str, Any] = dict(queues="jobs", worker="w", claim_id="c-1", lease=30, wait=5)
        [first] = self.quell.claim(**wish)
        [again] = self.quell.claim(**wish)
        self.assertEqual((first.run_id, first.token), (again.run_id, again.token))
        with again.kept(0.05):
            before = again.left
            until("a heartbeat", lambda: again.left > before - 0.01)
        again.settle("succeeded")

    def test_answers_that_are_lost_are_asked_for_again_and_nothing_is_done_twice(self) -> None:
        lose = {"/events": 1, "/v1/claims ": 3, "/steps/": 3, "/hold": 2, "/settle": 3, "/extend": 2}
        proxy = LossyProxy(self.server.port, lose)
        self.addCleanup(proxy.close)
        done: List[Tuple[str, int]] = []

        def handle(run: Run) -> object:
            value = run.step("one", lambda: 1) + run.step_once("two", lambda: 2)
            run.hold()
            run.wait(0.5)
            done.append((run.key, run.attempt))
            return value

        lossy = Quell(proxy.url)
        self.work("jobs", handle, quell=lossy, lease=20, heartbeat=0.1)
        run = self.ended(str(lossy.append("jobs", "lossy", 1).run_id))
        self.assertEqual((run["state"], run["result"], run["attempts"], run["claims"]), ("succeeded", 3, 1, 1))
        self.assertEqual(done, [("lossy", 1)])
        self.assertEqual(sorted(set(proxy.lost)), sorted(lose), "every kind of answer was lost at least once")

    def test_a_worker_that_asks_for_what_it_cannot_have_says_why(self) -> None:
        for queue, reason in (("own", NotPulled), ("nothing", UnknownQueue)):
            worker = Worker(self.quell, queue, print)
            with self.assertRaises(reason):
                worker.run()
        wrong: List[Dict[str, Any]] = [{"concurrency": 0}, {"on_error": "ignore"}]
        for settings in wrong:
            with self.assertRaises(ValueError):
                Worker(self.quell, "jobs", print, **settings)

        async def later(run: Run) -> None:
            pass

        with self.assertRaises(TypeError):
            Worker(self.quell, "jobs", later)

    def test_a_worker_that_stops_while_it_waits_holds_nothing(self) -> None:
        worker = self.work("chat", print, wait=50)
        until("a long poll", lambda: self.long_polls() == 1)
        started = time.monotonic()
        worker.stop()
        self.assertLess(time.monotonic() - started, 20, "it does not wait for the poll")
        until("its poll to be gone", lambda: self.long_polls() == 0)
        receipt = self.quell.append("chat", "after", 1)
        self.work("chat", print)
        run = self.ended(str(receipt.run_id))
        self.assertEqual((run["state"], run["claims"]), ("succeeded", 1))

    def long_polls(self) -> float:
        with urllib.request.urlopen(f"{self.server.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith("quell_http_long_polls "))
