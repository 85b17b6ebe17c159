# /// script
# dependencies = []
#
# [tool.rivals]
# unfinished = "select exists (select from jobq.job)"
# ///
"""jobq: docs/performance.md.

- `jobq run` with 500 slots, as in the benchmark `throughput`; in this process, so that the handler can count
- all jobs in one `enqueue_many`, which is one transaction
- history kept for a day, its default
"""

from __future__ import annotations

import asyncpg
import uvloop

from benchmarks.rivals.adapter import NOTE, Tally, enqueue_clock, main
from jobq import Queue
from jobq.cli.main import app
from jobq.db.migrate import migrate

queue = Queue()
tally = Tally(0)


@queue.task(kind="noop", on_duplicate="harmless: it does nothing")
async def noop(order_id: int, note: str) -> None:
    """Do nothing: what is measured is the queue."""
    tally.mark(order_id)


async def setup(dsn: str) -> None:
    """Migrate."""
    conn = await asyncpg.connect(dsn)
    await migrate(conn, "jobq")
    await conn.close()


async def enqueue(dsn: str, numbers: range) -> None:
    """Enqueue all jobs in one call."""
    queue.use_dsn(dsn)
    async with queue:
        with enqueue_clock():
            await queue.enqueue_many(noop.bind(order_id=number, note=NOTE) for number in numbers)


def work(dsn: str, called: Tally) -> None:
    """Be `jobq run`."""
    global tally
    tally = called
    app(["run", "__main__:queue", "--dsn", dsn, "--concurrency", "500", "--log-level", "error"], standalone_mode=False)


if __name__ == "__main__":
    main(setup=setup, enqueue=enqueue, work=work, run=uvloop.run)
