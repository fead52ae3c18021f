"""huey on SQLite with `fsync`, write-ahead log: its consumer with threads, no results kept.

It has no way to append several at once, no order per key and no debounce, so `jobs` is all there is.
"""

import logging
import threading
import time

from common import ADDRESS, RUN, TEXT, answer, elapsed_ms, rate
from huey import SqliteHuey

logging.getLogger("huey").setLevel(logging.ERROR)
huey = SqliteHuey("peer", filename=f"{ADDRESS}/huey.db", fsync=True, results=False, timeout=30)
numbers: set[int] = set()
handled = 0
counting = threading.Lock()


@huey.task()
def none(n: int, text: str) -> None:
    global handled
    with counting:
        numbers.add(n)
        handled += 1


def main() -> None:
    figures = {}
    n = 0
    since = time.perf_counter()
    while n < RUN.jobs // 4 and elapsed_ms(since) < RUN.one_ms:
        none(n, TEXT)
        n += 1
    figures["one"] = rate(n, since)

    first, since = n, time.perf_counter()
    taking = threading.Lock()

    def caller() -> None:
        nonlocal n
        while True:
            with taking:
                if n >= first + RUN.jobs // 4 or elapsed_ms(since) > RUN.callers_ms:
                    return
                mine, n = n, n + 1
            none(mine, TEXT)

    threads = [threading.Thread(target=caller, daemon=True) for _ in range(RUN.callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures["callers"] = rate(n - first, since)

    # There is no bulk to fill the rest with, so the backlog is shorter; a drain does not come to its end in its time.
    while n < RUN.jobs // 4:
        none(n, TEXT)
        n += 1

    since = time.perf_counter()
    consumer = huey.create_consumer(workers=4, periodic=False, initial_delay=0.001, max_delay=0.01, backoff=1.15)
    consumer.start()
    while handled < n and elapsed_ms(since) < RUN.drain_ms:
        time.sleep(0.002)
    figures |= {"drain": rate(handled, since), "drained": handled, "distinct": len(numbers), "appended": n}
    answer(figures, "huey")


main()
