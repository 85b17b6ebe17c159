"""Hears the notifications of enqueues and wakes claim loops. Only latency depends on it: polls find every job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobq.db.connect import driver_errors, open_listener
from jobq.errors import DatabaseError
from jobq.telemetry.events import Emit
from jobq.worker.outage import Outage

if TYPE_CHECKING:
    pass


class Listener:
    """The one listening connection of a worker, replaced whenever it is lost."""

    def __init__(self, *, dsn: str, channel: str, wake: Callable[[str | None], None], emit: Emit) -> None:
        self._dsn = dsn
        self._channel = channel
        self._wake = wake
        self._outage = Outage("listener", emit)

    async def run(self) -> None:
        """Listen until cancelled. *wake* gets a queue's name, or None after a gap in which some were missed."""
        while True:
            try:
                await self._listen()
            except DatabaseError as error:
                await self._outage.pause(error)

    async def _listen(self) -> None:
        lost = asyncio.Event()
        with driver_errors():
            connection = await open_listener(self._dsn, self._channel, self._wake, lost.set)
        try:
            self._outage.over()
            self._wake(None)
            await lost.wait()
        finally:
            connection.terminate()
