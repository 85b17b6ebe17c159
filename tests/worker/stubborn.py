"""What a handler does that will not be cancelled."""

from __future__ import annotations

import asyncio
import time

from tests.worker.observe import DEADLINE_S


async def swallow_cancellation(until: asyncio.Event) -> None:
    """Run until *until* is set, whoever cancels; not longer than a test, whose loop could not end before."""
    give_up_at = time.monotonic() + DEADLINE_S
    while not until.is_set() and time.monotonic() < give_up_at:
        try:
            await until.wait()
        except asyncio.CancelledError:
            continue
