# /// script
# dependencies = ["chancy==0.26.0", "psycopg[binary]==3.3.9", "uvloop==0.23.0"]
#
# [tool.rivals]
# unfinished = "select exists (select from chancy_jobs where state <> 'succeeded')"
# ///
"""Chancy: https://tkte.ch/chancy/, "Queues", "Executors" and "Workers".

- the asyncio executor, "for running large numbers of IO-bound jobs"
- concurrency 5,000 with eager polling: it polls when a job has finished, not every few seconds, and a poll brings as
  many jobs as are missing. It drained 5,000 jobs at 4,000/s, with 1,000 at 3,300/s
- its outcomes are written once a second, its default; finished jobs are kept, its default without the pruner
- `push_many` with its default batch of 1,000
- its log, a line a job, is off below errors
"""

from __future__ import annotations

import asyncio
import logging

import uvloop
from chancy import Chancy, Job, Queue, Worker

from benchmarks.rivals.adapter import Tally, enqueue_clock, main, payload, until_sigterm

CONCURRENCY = 5_000

tally = Tally(0)


async def noop(*, order_id: int, note: str) -> None:
    """Do nothing."""
    tally.mark(order_id)


def _chancy(dsn: str) -> Chancy:
    log = logging.getLogger("chancy")
    log.setLevel(logging.ERROR)
    return Chancy(dsn, log=log)


async def setup(dsn: str) -> None:
    """Migrate and declare the queue."""
    async with _chancy(dsn) as chancy:
        await chancy.migrate()
        queue = Queue("default", concurrency=CONCURRENCY, executor=Chancy.Executor.Async, eager_polling=True)
        await chancy.declare(queue, upsert=True)


async def enqueue(dsn: str, numbers: range) -> None:
    """Push all jobs; it commits batch by batch."""
    async with _chancy(dsn) as chancy:
        with enqueue_clock():
            job = Job.from_func(noop, queue="default")
            async for _ in chancy.push_many([job.with_kwargs(**payload(number)) for number in numbers]):
                pass


async def work(dsn: str, called: Tally, stop: asyncio.Event) -> None:
    """Run a worker."""
    global tally
    tally = called
    async with _chancy(dsn) as chancy, Worker(chancy, register_signal_handlers=False):
        await stop.wait()


if __name__ == "__main__":
    main(setup=setup, enqueue=enqueue, work=until_sigterm(work, run=uvloop.run), run=uvloop.run)
