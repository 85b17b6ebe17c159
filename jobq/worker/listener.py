"""Hears the notifications of enqueues and wakes claim loops. Only latency depends on it: polls find every job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio

from jobq.db.connect import Ear
from jobq.errors import DatabaseError
from jobq.telemetry.events import Emit
from jobq.worker.faults import Point, reach
from jobq.worker.pulse import Pulse

CHECK_S = 10.0
"""A connection that a proxy or a failover has dropped without a word looks like a quiet one: ask it now and then."""


class Listener:
    """The one listening connection of a worker, replaced whenever it is lost."""

    def __init__(self, *, ear: Ear, wake: Callable[[str | None], None], emit: Emit) -> None:
        self._ear = ear
        self._wake = wake
        self.pulse = Pulse("listener", bound_s=CHECK_S + ear.patience_s, emit=emit)

    async def run(self) -> None:
        """Listen until cancelled. *wake* gets a queue's name, or None after a gap in which some were missed."""
        while True:
            await reach(Point.LISTEN)
            try:
                async with self._ear.listen(self._wake) as lost:
                    self.pulse.worked()
                    self._wake(None)
                    await self._stay(lost)
            except DatabaseError as error:
                await self.pulse.pause(error)

    async def _stay(self, lost: asyncio.Event) -> None:
        while not lost.is_set():
            with anyio.move_on_after(CHECK_S):
                await lost.wait()
            if not lost.is_set():
                await self._ear.check()
                self.pulse.worked()
