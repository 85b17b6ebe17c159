# /// script
# dependencies = ["pgqueuer[asyncpg]==1.6.0", "uvloop==0.23.0"]
#
# [tool.rivals]
# unfinished = "select exists (select from pgqueuer)"
# ///
"""PgQueuer: https://janbjorge.github.io/pgqueuer/guides/performance-tuning/.

- asyncpg and uvloop, as in its own benchmark and its command line
- one queue manager on a connection of its own, as its checklist says. Its benchmark runs five in a process: here one
  drained 60,000 jobs at 17,200/s, two at 15,100/s, five at 12,200/s
- batch_size 1,000: larger "when jobs are short-lived"; 3,000 was slower
- the settings of autovacuum that its checklist begins with
- durability `durable`, its default: a row of the log for each job
"""

from __future__ import annotations

import asyncio
import json

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.rivals.adapter import Tally, chunks, enqueue_clock, main, payload, until_sigterm

BATCH = 1_000
CHUNK = 10_000


async def setup(dsn: str) -> None:
    """Install the tables, with the recommended settings of autovacuum."""
    queries = Queries(AsyncpgDriver(await asyncpg.connect(dsn)))
    await queries.install()
    await queries.optimize_autovacuum()


async def enqueue(dsn: str, numbers: range) -> None:
    """Enqueue lists of jobs."""
    queries = Queries(AsyncpgDriver(await asyncpg.connect(dsn)))
    with enqueue_clock():
        for some in chunks(numbers, CHUNK):
            payloads: list[bytes | None] = [json.dumps(payload(number)).encode() for number in some]
            await queries.enqueue(["noop"] * len(some), payloads, [0] * len(some))


async def work(dsn: str, tally: Tally, stop: asyncio.Event) -> None:
    """Run a queue manager."""

    async def noop(job: Job) -> None:
        tally.mark(json.loads(job.payload)["order_id"])

    manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(dsn)))
    manager.entrypoint("noop")(noop)
    async with asyncio.TaskGroup() as running:
        running.create_task(manager.run(batch_size=BATCH))
        await stop.wait()
        manager.shutdown.set()


if __name__ == "__main__":
    main(setup=setup, enqueue=enqueue, work=until_sigterm(work, run=uvloop.run), run=uvloop.run)
