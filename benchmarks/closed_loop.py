"""Jobs enqueued in bulk as fast as they are run: a new chunk whenever no more than so many wait."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchmarks.database import SCHEMA
from benchmarks.sleepers import NOTE, noop
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

CHUNK = 1000
LOOK_EVERY_S = 0.005

NEWEST_DONE = f"select max(id) from {SCHEMA}.done"
"""Eight short index scans. Jobs finish nearly in the order of their ids, so it says how many are left."""


async def feed(conn: Conn, queue: Queue, seconds: float, *, waiting: int) -> int:
    """Keep up to *waiting* jobs waiting for *seconds*, in a new schema. Returns how many were enqueued."""
    ends_at = time.monotonic() + seconds
    enqueued = 0
    while time.monotonic() < ends_at:
        if enqueued + CHUNK - (await conn.fetchval(NEWEST_DONE) or 0) > waiting:
            await asyncio.sleep(LOOK_EVERY_S)
            continue
        await queue.enqueue_many([noop.bind(order_id=number, note=NOTE) for number in range(CHUNK)])
        enqueued += CHUNK
    return enqueued
