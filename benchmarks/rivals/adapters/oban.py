# /// script
# requires-python = ">=3.12"
# dependencies = ["oban==0.7.0", "uvloop==0.23.0"]
#
# [tool.rivals]
# unfinished = "select exists (select from oban_jobs where state <> 'completed')"
# ///
"""Oban for Python: https://oban.pro/docs/py, "Defining Queues" and "Ready for Production".

- limit 2,000: a fetch brings as many jobs as are missing to the limit. It drained 8,000 jobs at 8,100/s, with 500 at
  7,700/s, with 100 at 6,000/s
- the default pool of 10 connections, "comfortable for most deployments": a running job holds none
- the default pause of 5 ms between fetches, and finished jobs kept for a day
- `enqueue_many` with 1,000 jobs a statement
"""

from __future__ import annotations

import asyncio

import psycopg
import uvloop
from oban import Job, Oban, worker
from oban.schema import install_sql

from benchmarks.rivals.adapter import Tally, chunks, enqueue_clock, main, payload, until_sigterm

LIMIT = 2_000
CHUNK = 1_000

tally = Tally(0)


class Noop:
    """A worker in Oban's sense: a kind of job."""

    async def process(self, job: Job) -> None:
        """Do nothing."""
        tally.mark(job.args["order_id"])


noop = worker(queue="default")(Noop)


async def setup(dsn: str) -> None:
    """Install the tables."""
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        await conn.execute(install_sql())


async def enqueue(dsn: str, numbers: range) -> None:
    """Enqueue lists of jobs."""
    async with Oban(pool=await Oban.create_pool(dsn)) as oban:
        with enqueue_clock():
            for some in chunks(numbers, CHUNK):
                await oban.enqueue_many([noop.new(payload(number)) for number in some])


async def work(dsn: str, called: Tally, stop: asyncio.Event) -> None:
    """Run one queue."""
    global tally
    tally = called
    async with Oban(pool=await Oban.create_pool(dsn), queues={"default": LIMIT}):
        await stop.wait()


if __name__ == "__main__":
    main(setup=setup, enqueue=enqueue, work=until_sigterm(work, run=uvloop.run), run=uvloop.run)
