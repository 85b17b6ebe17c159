"""The application of the benchmarks' worker processes: `jobq run benchmarks.sleepers:queue`."""

from __future__ import annotations

import asyncio

from benchmarks.database import SCHEMA
from jobq import Queue

NOTE = "x" * 70
"""Makes a payload of about 100 bytes."""

queue = Queue(schema=SCHEMA)


@queue.task(kind="sleep", timeout=600, on_duplicate="harmless: it only sleeps")
async def sleep(seconds: float) -> None:
    """Hold a slot."""
    await asyncio.sleep(seconds)


@queue.task(kind="noop", on_duplicate="harmless: it does nothing")
async def noop(order_id: int, note: str) -> None:
    """Do nothing: what is measured is the queue."""
