"""A worker for tests that is a process of its own: python working.py QUEUE MODE [NAME=VALUE…]

hang  says `began KEY attempt N`, then waits until it is told to stop, and hands the run back
deaf  says the same, and listens to nobody
done  says `did KEY IDS`, and is done
"""

import logging
import os
import sys
import threading

from quell_client import Quell, Release, Run, Worker

queue, mode = sys.argv[1:3]
settings = dict(text.split("=") for text in sys.argv[3:])


def say(*words: str) -> None:
    """One write for a line: `print` of two threads would mix theirs."""
    os.write(1, (" ".join(words) + "\n").encode())


def handle(run: Run) -> object:
    if mode == "done":
        say("did", run.key, *[event.id for event in run.events])
        return {"by": os.getpid()}
    say(f"began {run.key} attempt {run.attempt}")
    if mode == "deaf":
        threading.Event().wait()
    while not run.wait(60):
        pass
    raise Release("told to stop")


logging.basicConfig(level=logging.WARNING)
worker = Worker(
    Quell(os.environ["QUELL_URL"]),
    queue,
    handle,
    concurrency=int(settings.get("concurrency", "4")),
    lease=float(settings.get("lease", "30")),
    grace=float(settings.get("grace", "20")),
)
say("ready", worker.name)
worker.run()
say("stopped")
