"""Jobs whose transactions stay open for seconds after the enqueue, while many newer ones are claimed and done."""

from __future__ import annotations

import asyncio
import random
import time

import asyncpg

from benchmarks.stamps import stamp
from jobq import Queue

OPEN_S = (3.0, 6.0)
EVERY_S = 1.0


async def commit_late(dsn: str, queue: Queue, seconds: float) -> dict[int, float]:
    """Begin a transaction a second; all are committed when *seconds* have passed. Returns when each job was.

    By this machine's clock, in seconds since the epoch, once the server has confirmed the commit.
    """
    committed: dict[int, float] = {}
    ends_at = time.monotonic() + seconds

    async def transaction(open_s: float) -> None:
        conn = await asyncpg.connect(dsn)
        async with conn.transaction():
            job = await queue.enqueue(stamp.bind(), conn=conn)
            await asyncio.sleep(open_s)
        committed[job.id] = time.time()
        await conn.close()

    async with asyncio.TaskGroup() as group:
        while (left_s := ends_at - time.monotonic()) > 0:
            group.create_task(transaction(min(left_s, random.uniform(*OPEN_S))))
            await asyncio.sleep(min(left_s, EVERY_S))
    return committed
