"""The handlers of `chaos`: each writes its call into a ledger that the queue cannot touch."""

from __future__ import annotations

import asyncio
import os
import time

from benchmarks.database import SCHEMA
from jobq import Backoff, Job, Permanent, Queue

queue = Queue(schema=SCHEMA)

LEDGER = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_APPEND)
SOON = Backoff(base_s=0.2, cap_s=1.0)


def note(job: Job) -> None:
    """Write one line to the ledger. One short write to a file opened for appending is not torn."""
    # The worker's id is no business of a handler, but whose settle was accepted is the question here.
    call = f"{job.id} {job.attempt} {job.fence} {job._scope.worker_id} {time.time():.6f} {os.getpid()}\n"
    os.write(LEDGER, call.encode())


@queue.task(kind="touch", backoff=SOON, on_duplicate="the ledger shows it")
async def touch(job: Job, order_id: int) -> None:
    """Do nothing else."""
    note(job)


@queue.task(kind="touch_in_thread", backoff=SOON, on_duplicate="the ledger shows it")
def touch_in_thread(job: Job, order_id: int) -> None:
    """Do nothing else, in a thread."""
    note(job)


@queue.task(kind="nap", backoff=SOON, on_duplicate="the ledger shows it")
async def nap(job: Job, order_id: int) -> None:
    """Sleep a little, so that a kill finds it running."""
    note(job)
    await asyncio.sleep(order_id % 10 / 50)


@queue.task(kind="transfer", backoff=SOON, on_duplicate="none: the row commits with the completion")
async def transfer(job: Job, order_id: int) -> None:
    """Write a row in the transaction that completes the job."""
    note(job)
    async with job.transaction() as conn:
        await conn.execute("insert into chaos_effect (job_id, fence) values ($1, $2)", job.id, job.fence)
        await asyncio.sleep(order_id % 10 / 100)


@queue.task(kind="stumble", backoff=SOON, on_duplicate="the ledger shows it")
async def stumble(job: Job, order_id: int) -> None:
    """Fail the first time."""
    note(job)
    if job.attempt == 1:
        raise ConnectionError("the first attempt fails")


@queue.task(kind="reject", on_duplicate="the ledger shows it")
async def reject(job: Job, order_id: int) -> None:
    """Fail for good."""
    note(job)
    raise Permanent("no such order")


MIX = (
    (60, touch),
    (5, touch_in_thread),
    (15, nap),
    (10, transfer),
    (8, stumble),
    (2, reject),
)
"""Of a hundred orders."""
