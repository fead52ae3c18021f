"""procrastinate: batches for bulk, a lock per key for order, many jobs at once in one asynchronous worker.

Its `queueing_lock` refuses a second job while one waits, which drops events and does not move the time; there is no debounce, so
there is no `burst`.
"""

import asyncio
import time

import procrastinate
from common import ADDRESS, RUN, SHAPE, TEXT, Keyed, answer, elapsed_ms, key, rate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=ADDRESS, min_size=4, max_size=25))
numbers: set[int] = set()
handled = 0
keyed = Keyed()


@app.task(name="none")
async def none(n: int, text: str) -> None:
    global handled
    numbers.add(n)
    handled += 1


@app.task(name="keyed")
async def in_turn(n: int, text: str) -> None:
    keyed.enter(n)
    await asyncio.sleep(0.001)
    keyed.leave(n)


async def until(count, wanted: int, since: float, limit_ms: float) -> None:
    worker = asyncio.create_task(app.run_worker_async(concurrency=100, wait=True, install_signal_handlers=False, delete_jobs="successful"))
    while count() < wanted and elapsed_ms(since) < limit_ms and not worker.done():
        await asyncio.sleep(0.002)


async def jobs() -> dict:
    figures = {}
    n = 0

    async def one() -> None:
        nonlocal n
        mine, n = n, n + 1
        await none.defer_async(n=mine, text=TEXT)

    since = time.perf_counter()
    while n < RUN.jobs // 4 and elapsed_ms(since) < RUN.one_ms:
        await one()
    figures["one"] = rate(n, since)

    first, since = n, time.perf_counter()

    async def caller() -> None:
        while n < first + RUN.jobs // 4 and elapsed_ms(since) < RUN.callers_ms:
            await one()

    await asyncio.gather(*(caller() for _ in range(RUN.callers)))
    figures["callers"] = rate(n - first, since)

    second, since = n, time.perf_counter()
    while n < RUN.jobs:
        end = min(n + RUN.bulk, RUN.jobs)
        await none.batch_defer_async(*({"n": m, "text": TEXT} for m in range(n, end)))
        n = end
    figures["bulk"] = rate(n - second, since)

    since = time.perf_counter()
    await until(lambda: handled, n, since, RUN.drain_ms)
    figures |= {"drain": rate(handled, since), "drained": handled, "distinct": len(numbers), "appended": n}
    return figures


async def strictly_serial() -> dict:
    # A lock is an option of the deferrer, so a batch has one key; keys are filled one after the other.
    for of in range(RUN.keyed_keys):
        deferrer = in_turn.configure(lock=key(of))
        await deferrer.batch_defer_async(*({"n": n, "text": TEXT} for n in range(of, RUN.keyed_events, RUN.keyed_keys)))
    since = time.perf_counter()
    await until(lambda: keyed.handled, RUN.keyed_events, since, RUN.keyed_ms)
    return keyed.figures(since)


async def main() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        answer(await (jobs() if SHAPE == "jobs" else strictly_serial()), "procrastinate")


asyncio.run(main())
