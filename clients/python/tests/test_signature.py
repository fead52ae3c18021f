"""Signatures of pushed batches: the same vectors as the server and the other clients."""

import base64
import json
import unittest

from quell_client import SignatureError, verify
from support import HERE

VECTORS = json.loads((HERE.parents[1] / "vectors.json").read_text("utf-8"))
SECRET = "whsec_" + base64.b64encode(b"x" * 32).decode()


class Signatures(unittest.TestCase):
    def test_every_vector_gets_the_verdict_of_the_server(self) -> None:
        for case in VECTORS["cases"]:
            headers = [(name, value) for name, value in case["headers"]]
            body = base64.b64decode(case["body_base64"])
            with self.subTest(case["name"]):
                try:
                    id = verify(body, headers, case["secrets"], VECTORS["tolerance"], VECTORS["now"])
                    verdict = "ok"
                    self.assertIn(id, [value for _, value in headers])
                except SignatureError as refused:
                    verdict = refused.reason
                self.assertEqual(verdict, case["expect"])
        self.assertGreater(len(VECTORS["cases"]), 40)

    def test_headers_may_be_a_mapping(self) -> None:
        case = VECTORS["cases"][0]
        body = base64.b64decode(case["body_base64"])
        headers = {name.title(): value for name, value in case["headers"]}
        self.assertEqual(verify(body, headers, case["secrets"][0], now=VECTORS["now"]), headers["Webhook-Id"])

    def test_the_clock_of_this_machine_is_used_unless_another_time_is_given(self) -> None:
        case = VECTORS["cases"][0]
        with self.assertRaises(SignatureError) as refused:
            verify(base64.b64decode(case["body_base64"]), dict(case["headers"]), case["secrets"])
        self.assertIn(refused.exception.reason, ("stale", "future"))

    def test_what_is_no_secret_is_told_without_repeating_it(self) -> None:
        for text in ("", "whsec_", "not base64 at all!", base64.b64encode(b"short").decode()):
            with self.assertRaises(ValueError) as refused:
                verify(b"", {}, text)
            self.assertTrue(len(text) < 8 or text not in str(refused.exception))
        with self.assertRaises(SignatureError):
            verify(b"", {}, [SECRET, SECRET])
