# /// script
# dependencies = ["awa-pg==0.6.9"]
#
# [tool.rivals]
# unfinished = """
# select (select count(*) from awa.ready_entries)
#   > (select count(*) from awa.done_entries)
#   + (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)
# """
# ///
"""Awa, Rust with handlers in Python: https://github.com/hardbyte/awa/tree/main/docs.

- the storage engine of its current release, "queue storage"; `enqueue_many_copy` needs it active, which the migration
  of this version does not see to. Without statistics (`trial`) it drained 10,000 jobs at 370/s, with them at 6,900/s
- 1,024 workers, so that the number of jobs at once is no limit; connections as its notes say, queues * 4 + 20
- other numbers of claimers and larger batches of claims were no faster, so its defaults stand
- a job is finished when a batch of completions or a row of its own says so; its view of all jobs says the same, but
  had no answer after 100 s for 40,000 jobs
- `enqueue_many_copy`, its way for "high-volume producers"
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import awa

from benchmarks.rivals.adapter import NOTE, Tally, chunks, enqueue_clock, main, until_sigterm

WORKERS = 1_024
CONNECTIONS = 24
CHUNK = 10_000


@dataclass
class Noop:
    """The kind of the jobs."""

    order_id: int
    note: str


async def setup(dsn: str) -> None:
    """Migrate, and switch to the current storage engine."""
    client = awa.AsyncClient(dsn)
    await client.migrate()
    await client.install_queue_storage()


async def enqueue(dsn: str, numbers: range) -> None:
    """Enqueue lists of jobs."""
    client = awa.AsyncClient(dsn)
    with enqueue_clock():
        for some in chunks(numbers, CHUNK):
            await client.enqueue_many_copy([Noop(number, NOTE) for number in some], queue="default")


async def work(dsn: str, tally: Tally, stop: asyncio.Event) -> None:
    """Run one queue."""

    async def noop(job: awa.Job) -> None:
        tally.mark(job.args.order_id)

    client = awa.AsyncClient(dsn, max_connections=CONNECTIONS)
    client.task(Noop, queue="default")(noop)
    await client.start([("default", WORKERS)])
    await stop.wait()
    await client.shutdown()


if __name__ == "__main__":
    main(setup=setup, enqueue=enqueue, work=until_sigterm(work))
