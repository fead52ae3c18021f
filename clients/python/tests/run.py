"""Runs all tests, or those whose names hold an argument, and ends with the line that `cargo xtask test` counts by."""

import logging
import sys
import unittest
from typing import Iterator, Union

from support import HERE


def flat(suite: Union[unittest.TestSuite, unittest.TestCase]) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        yield suite
    else:
        for part in suite:
            yield from flat(part)


# What workers complain about in these tests is what the tests are about.
logging.getLogger("quell_client").setLevel(logging.CRITICAL)
found = unittest.defaultTestLoader.discover(str(HERE), top_level_dir=str(HERE))
words = sys.argv[1:]
chosen = unittest.TestSuite(test for test in flat(found) if not words or any(word in test.id() for word in words))
result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(chosen)
if result.failures or result.errors:
    print("failures:")  # Between this line and the last one is what the report repeats.
    for test, trace in result.failures + result.errors:
        print(f"---- {test.id()} ----\n{trace}")
bad = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
passed = result.testsRun - bad - len(result.skipped)
verdict = "ok" if result.wasSuccessful() and passed else "FAILED"
print(f"test result: {verdict}. {max(passed, 0)} passed; {bad} failed; {len(result.skipped)} ignored;", flush=True)
sys.exit(0 if verdict == "ok" else 1)
