"""An application with a queue for slow jobs and one for quick ones: `jobq run benchmarks.two_queues:queue`."""

from __future__ import annotations

import asyncio

from benchmarks.database import SCHEMA
from benchmarks.stamps import write_stamp
from jobq import Job, Queue

queue = Queue(schema=SCHEMA)


@queue.task(kind="slow", queue="slow", on_duplicate="harmless: it only sleeps")
async def slow(seconds: float) -> None:
    """Hold a slot."""
    await asyncio.sleep(seconds)


@queue.task(kind="quick", queue="quick", on_duplicate="harmless: the first stamp counts")
async def quick(job: Job) -> None:
    """Write down when the job started."""
    write_stamp(job.id)
