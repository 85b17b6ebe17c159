"""The application that the tests run: `jobq run app:queue --app-dir tests/cli`, on the schema that APP_SCHEMA names."""

from __future__ import annotations

import asyncio
import logging.config
import os
import time
import warnings

from jobq import Queue

# As applications do; by default it disables every logger that exists already, jobq's too.
logging.config.dictConfig({"version": 1})

queue = Queue(schema=os.environ.get("APP_SCHEMA", "jobq"), queues={"mail": 7})


@queue.task(kind="quick", queue="mail", on_duplicate="harmless")
async def quick() -> None:
    """Be done."""
    print("quick runs")


@queue.task(kind="telling", queue="mail", on_duplicate="harmless")
async def telling(card: str) -> None:
    """Log and warn, and not of the card."""
    logging.getLogger("shop").warning("the receipt was sent", extra={"order_id": 7})
    warnings.warn("this is odd", stacklevel=1)
    print("telling has told")


@queue.task(kind="slow", on_duplicate="harmless")
async def slow(seconds: float) -> None:
    """Take *seconds*."""
    print("slow runs")
    await asyncio.sleep(seconds)
    print("slow has run")


@queue.task(kind="stubborn", on_duplicate="harmless")
async def stubborn() -> None:
    """Ignore every cancellation."""
    print("stubborn runs")
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            print("stubborn ignores its cancellation")


@queue.task(kind="blocking", queue="threads", on_duplicate="harmless")
def blocking() -> None:
    """Block a thread, which nothing can end."""
    print("blocking runs")
    time.sleep(600)


@queue.task(kind="leaving", on_duplicate="harmless")
async def leaving() -> None:
    """Leave a thread behind that nothing can end."""
    print("leaving runs")
    await asyncio.to_thread(time.sleep, 600)
