"""Events in: what a sender may rely on."""

import time
import unittest

from quell_client import (
    Conflict,
    ConnectionFailed,
    InvalidRequest,
    LaneNotIdle,
    NewEvent,
    Quell,
    ServerError,
    TooLarge,
    Unauthorized,
    UnknownQueue,
    Window,
)
from support import LossyProxy, Server, ServerCase, until


class Append(ServerCase):
    def test_a_known_id_is_answered_with_the_first_receipt(self) -> None:
        first = self.quell.append("chat", "ada", {"text": "hi"}, id="msg-1")
        again = self.quell.append("chat", "ada", {"text": "hi"}, id="msg-1")
        self.assertEqual((first.event_id, first.duplicate, first.state), ("msg-1", False, "pending"))
        self.assertEqual((again.event_id, again.duplicate, again.seq), ("msg-1", True, first.seq))

    def test_a_known_id_with_another_payload_is_a_conflict(self) -> None:
        self.quell.append("chat", "bob", 1, id="msg-1")
        with self.assertRaises(Conflict) as refused:
            self.quell.append("chat", "bob", 2, id="msg-1")
        self.assertEqual((refused.exception.status, refused.exception.code), (409, "conflict"))
        self.assertEqual(refused.exception.event_ids, ["msg-1"])
        self.assertFalse(refused.exception.temporary)

    def test_a_bad_key_is_refused_with_a_text_that_says_what_a_key_is(self) -> None:
        for key, text in (("", "key is empty"), ("x" * 513, "512"), ("a\0b", "NUL")):
            with self.assertRaises(InvalidRequest) as refused:
                self.quell.append("chat", key, 1)
            self.assertIn(text, str(refused.exception))
        with self.assertRaises(InvalidRequest) as placed:
            self.quell.append_many("chat", [NewEvent("good", 1), NewEvent("", 1)])
        self.assertEqual(placed.exception.place, "[1]")
        with self.assertRaises(UnknownQueue) as unknown:
            self.quell.append("nothing", "ada", 1)
        self.assertIn("[queues.nothing]", unknown.exception.detail)

    def test_many_are_stored_all_or_none_with_receipts_in_their_order(self) -> None:
        receipts = self.quell.append_many("chat", [NewEvent("cy", n, id=f"n-{n}") for n in range(50)])
        self.assertEqual([receipt.event_id for receipt in receipts], [f"n-{n}" for n in range(50)])
        self.assertEqual(sorted(r.seq or 0 for r in receipts), [r.seq for r in receipts])
        with self.assertRaises(Conflict):
            self.quell.append_many("chat", [NewEvent("cy", "new", id="new"), NewEvent("cy", "other", id="n-1")])
        self.assertFalse(self.quell.append("chat", "cy", "new", id="new").duplicate, "nothing of it was stored")
        self.assertEqual(self.quell.append_many("chat", []), [])

    def test_options_of_an_event_are_understood_by_the_server(self) -> None:
        aside = self.quell.append("chat", "dan", 1, delay=3600, priority=9, tenant="acme")
        self.assertEqual((aside.seq, aside.run_id), (None, None))
        self.quell.append("chat", "eve", 1, window=Window.fixed(60))
        with self.assertRaises(LaneNotIdle):
            self.quell.append("chat", "eve", 2, only_if_idle=True)
        soon = self.quell.append("chat", "fay", 1, window=Window.quiet(0.01, 0.02))
        none = self.quell.append("chat", "gil", 1, window=Window.none())
        assert soon.due_at is not None and none.due_at is not None
        with self.assertRaises(ValueError):
            self.quell.append("chat", "hal", 1, delay=-1)
        with self.assertRaises(InvalidRequest):
            self.quell.append("chat", "hal", 1, id="")

    def test_what_is_no_json_never_leaves(self) -> None:
        for payload in (float("nan"), object(), b"bytes"):
            with self.assertRaises((TypeError, ValueError)):
                self.quell.append("chat", "ivy", payload)
        with self.assertRaises(TooLarge):
            self.quell.append("chat", "ivy", "x" * (9 << 20))

    def test_an_answer_that_is_lost_is_asked_for_again_and_the_event_is_stored_once(self) -> None:
        proxy = LossyProxy(self.server.port, {"/events": 2})
        self.addCleanup(proxy.close)
        receipt = Quell(proxy.url).append("chat", "jim", {"text": "once"})
        self.assertEqual(len(proxy.lost), 2)
        self.assertTrue(receipt.duplicate, "the second answer is about the first call")
        listed = self.quell.request("GET", "/v1/lanes/chat/jim")
        self.assertEqual(listed["buffered"], 1)

    def test_without_patience_an_unknown_outcome_is_told_with_the_id_to_repeat_it_with(self) -> None:
        proxy = LossyProxy(self.server.port, {"/events": 1})
        self.addCleanup(proxy.close)
        with self.assertRaises(ConnectionFailed) as unknown:
            Quell(proxy.url, patience=0).append("chat", "kim", 1)
        [id] = unknown.exception.event_ids
        self.assertTrue(self.quell.append("chat", "kim", 1, id=id).duplicate)

    def test_a_connection_that_the_server_closed_meanwhile_is_no_failure(self) -> None:
        quell = Quell(self.server.url, patience=0)
        quell.append("chat", "leo", 1)
        [(_, connection)] = quell._transport._idle
        connection.sock.shutdown(2)
        quell.append("chat", "leo", 2)

    def test_nobody_there_is_told_with_the_address(self) -> None:
        started = time.monotonic()
        with self.assertRaises(ConnectionFailed) as refused:
            Quell("http://127.0.0.1:9", patience=0.3).append("chat", "ada", 1)
        self.assertIn("http://127.0.0.1:9", str(refused.exception))
        self.assertGreater(time.monotonic() - started, 0.05, "it was tried again")

    def test_the_address_of_something_else_is_noticed(self) -> None:
        for url in ("ftp://x", "127.0.0.1:7717", "http://me:secret@127.0.0.1", ""):
            with self.assertRaises(ValueError):
                Quell(url)
        with self.assertRaises(ServerError) as other:
            Quell(self.server.url).request("GET", "/metrics")
        self.assertIn("is no JSON", str(other.exception))


class Tokens(unittest.TestCase):
    def test_a_server_with_tokens_refuses_those_without(self) -> None:
        server = Server()
        self.addCleanup(server.stop)
        token = server.quell("token", "create", "sender", "--scope", "ingest")

        def refused() -> bool:
            try:
                Quell(server.url).append("chat", "ada", 1)
            except Unauthorized:
                return True
            return False  # Servers look at the list of tokens every two seconds.

        until("the server to know its first token", refused)
        self.assertFalse(Quell(server.url, token).append("chat", "ada", 2).duplicate)


if __name__ == "__main__":
    unittest.main()
