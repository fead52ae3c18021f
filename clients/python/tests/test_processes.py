"""Real processes that die, are stopped, and servers that go away: nothing is lost, and nothing is done twice by its id."""

import signal
from typing import Any, Dict, List

from quell_client import Quell, Receipt
from support import Server, ServerCase, terminate, until


class Processes(ServerCase):
    def test_a_killed_worker_is_taken_over(self) -> None:
        first = self.worker_process("working.py", "jobs", "deaf", "lease=2")
        first.line("ready")
        receipt = self.quell.append("jobs", "ada", 1)
        first.line("began ada attempt 1")
        first.kill()
        second = self.worker_process("working.py", "jobs", "done")
        second.line("did ada")
        run = self.ended(str(receipt.run_id))
        self.assertEqual((run["state"], run["attempts"], run["result"]), ("succeeded", 2, {"by": second.child.pid}))

    def test_a_worker_that_is_told_to_stop_hands_back_and_the_attempt_is_refunded(self) -> None:
        worker = self.worker_process("working.py", "jobs", "hang", "lease=60")
        worker.line("ready")
        receipts = {key: self.quell.append("jobs", key, 1) for key in ("bob", "cy")}
        for key in receipts:
            worker.line(f"began {key} attempt 1")
        code, lines = terminate(worker)
        self.assertEqual((code, lines[-1]), (0, "stopped"), lines)
        self.taken_up_at_once(receipts)

    def test_a_handler_that_does_not_listen_is_handed_back_after_the_grace(self) -> None:
        worker = self.worker_process("working.py", "jobs", "deaf", "lease=60", "grace=0.2")
        worker.line("ready")
        receipt = self.quell.append("jobs", "dan", 1)
        worker.line("began dan attempt 1")
        code, lines = terminate(worker)
        self.assertEqual((code, lines[-1]), (0, "stopped"), lines)
        self.taken_up_at_once({"dan": receipt})

    def test_a_second_signal_does_not_wait_for_the_grace(self) -> None:
        worker = self.worker_process("working.py", "jobs", "deaf", "lease=60", "grace=3000")
        worker.line("ready")
        receipt = self.quell.append("jobs", "eve", 1)
        worker.line("began eve attempt 1")
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGINT)
        self.assertEqual(worker.wait(), 0)
        self.taken_up_at_once({"eve": receipt})

    def taken_up_at_once(self, receipts: Dict[str, Receipt]) -> None:
        """Long before the lease of a minute could have ended, as the first attempt."""
        second = self.worker_process("working.py", "jobs", "done")
        for key, receipt in receipts.items():
            second.line(f"did {key}")
            run = self.ended(str(receipt.run_id))
            self.assertEqual((run["state"], run["attempts"], run["claims"]), ("succeeded", 1, 2), key)
        terminate(second)


class Restarts(ServerCase):
    def test_a_server_that_is_killed_in_the_middle_loses_nothing_and_nothing_is_done_twice_by_its_id(self) -> None:
        server = Server()
        self.addCleanup(server.stop)
        quell = Quell(server.url, patience=60)
        worker = self.worker_process("working.py", "jobs", "done", "lease=120", url=server.url)
        worker.line("ready")
        ids: List[str] = []
        for n in range(60):
            if n in (15, 40):
                server.process.kill()
                server.start()
            receipt = quell.append("jobs", f"key-{n % 4}", n, id=f"event-{n}")
            ids.append(receipt.event_id)

        def totals() -> Dict[str, Any]:
            [jobs] = [queue for queue in quell.request("GET", "/v1/stats")["queues"] if queue["queue"] == "jobs"]
            return dict(jobs)

        until("all sixty", lambda: totals()["succeeded"] == 60)
        code, lines = terminate(worker)
        self.assertEqual(code, 0, lines)
        jobs = totals()
        self.assertEqual((jobs["accepted"], jobs["succeeded"], jobs["dead"]), (60, 60, 0))
        did = [id for line in lines if line.startswith("did ") for id in line.split()[2:]]
        # No lease was over meanwhile, so every lost answer was asked for again, and nothing was handed out twice.
        self.assertEqual(sorted(did), sorted(ids))
        for n, receipt_id in enumerate(ids):
            self.assertTrue(quell.append("jobs", f"key-{n % 4}", n, id=receipt_id).duplicate)
        per_key: Dict[str, List[int]] = {}
        for line in lines:
            if line.startswith("did "):
                _, key, *those = line.split()
                per_key.setdefault(key, []).extend(int(id.split("-")[1]) for id in those)
        for key, order in per_key.items():
            self.assertEqual(order, sorted(order), f"{key} in order")
