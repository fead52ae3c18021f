"""What the drivers in Python share: their arguments, the payload and keys, the checks, and the one line they answer with.

A driver is started as `python DRIVER.py SHAPE ADDRESS SIZES` and prints one line of JSON at its end. SIZES are those of the runner
(`src/sizes.rs`), times in milliseconds.
"""

import json
import os
import platform
import sys
import time
from importlib.metadata import version
from types import SimpleNamespace

SHAPE, ADDRESS = sys.argv[1], sys.argv[2]
RUN = SimpleNamespace(**json.loads(sys.argv[3]))
TEXT = "a short message as people send it, long enough to be typical of a chat"


def key(n: int) -> str:
    return f"{(n * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF:016x}{n:08x}"


def elapsed_ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000


def rate(count: int, since: float) -> float:
    return count / (time.perf_counter() - since)


def answer(figures: dict, name: str) -> None:
    """Ends the program, whatever threads still do."""
    versions = {name: version(name), "Python": platform.python_version()}
    print(json.dumps({"figures": figures, "versions": versions}), flush=True)
    os._exit(0)


class Keyed:
    """Looks for overlaps and disorder; the caller waits the millisecond between `enter` and `leave`."""

    def __init__(self) -> None:
        self.busy: dict[int, int] = {}
        self.latest: dict[int, int] = {}
        self.handled = self.overlaps = self.disorders = 0

    def enter(self, n: int) -> None:
        of = n % RUN.keyed_keys
        if self.busy.get(of, 0) > 0:
            self.overlaps += 1
        self.busy[of] = self.busy.get(of, 0) + 1
        if n <= self.latest.get(of, -1):
            self.disorders += 1
        self.latest[of] = n

    def leave(self, n: int) -> None:
        self.busy[n % RUN.keyed_keys] -= 1
        self.handled += 1

    def figures(self, since: float) -> dict:
        return {
            "seconds": elapsed_ms(since) / 1000,
            "handled": self.handled,
            "overlaps": self.overlaps,
            "disorders": self.disorders,
        }
