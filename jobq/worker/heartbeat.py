"""Keeps the worker's lease and the leases of its jobs.

It beats in a thread and on a connection of its own, so that a handler that blocks the event loop loses no lease (unless
it holds the interpreter lock). When no beat has come through for as long as the worker's lease lasts, somebody else may
have the jobs: the worker's handlers are cancelled.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Sequence

import anyio

from jobq.core.worker import WorkerRow
from jobq.db.connect import Link
from jobq.db.store import Owned, Store
from jobq.errors import DatabaseError
from jobq.settings import WorkerSettings
from jobq.telemetry.events import Emit
from jobq.worker.faults import Point, reach
from jobq.worker.in_hand import InHand
from jobq.worker.pulse import Pulse

LOOK_S = 0.25
"""How often the event loop looks whether the lease still holds."""

LOOK_AROUND_S = 10.0
"""How often the other servers of the DSN are asked whether one was promoted: a login each, of every worker."""


def boot_time() -> float:
    """Return seconds on a clock that goes on while the machine sleeps, where there is one."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Heartbeat:
    """The heartbeat of one worker: `beat` runs in the thread, everything else on the event loop."""

    def __init__(
        self,
        *,
        store: Store,
        link: Link,
        worker: WorkerRow,
        settings: WorkerSettings,
        in_hand: Callable[[], Sequence[InHand]],
        on_lost: Callable[[Sequence[Owned]], None],
        on_lapsed: Callable[[bool], None],
        emit: Emit,
    ) -> None:
        self._store = store
        self._link = link
        self._worker = worker
        self._settings = settings
        self._in_hand = in_hand
        self._on_lost = on_lost
        self._on_lapsed = on_lapsed
        self.pulse = Pulse("heartbeat", bound_s=settings.worker_lease_s, emit=emit)
        self._renewed_at: float | None = None
        self._registered = anyio.Event()

    # -- on the event loop ---------------------------------------------------------------------------

    @property
    def is_registered(self) -> bool:
        """Whether the first beat has come through."""
        return self._renewed_at is not None

    async def wait_registered(self) -> None:
        """Wait until the first beat has come through."""
        await self._registered.wait()

    async def wait_fresh(self) -> None:
        """Wait until a beat has come through lately enough to claim: what is claimed then will be kept."""
        while not self._is_fresh():  # noqa: ASYNC110 - it is time that passes; nobody could set an event
            await anyio.sleep(LOOK_S)

    async def watch_lease(self) -> None:
        """Have the handlers cancelled whenever the lease must have lapsed, until cancelled."""
        was_lapsed = False
        while True:
            lapsed = self._has_lapsed()
            if lapsed:
                # At each look: what a claim that was under way has brought meanwhile is no safer.
                self._on_lapsed(not was_lapsed)
            was_lapsed = lapsed
            await anyio.sleep(LOOK_S)

    def _is_fresh(self) -> bool:
        return self._renewed_at is not None and self._silent_s(self._renewed_at) < self._settings.worker_lease_s / 2

    def _has_lapsed(self) -> bool:
        return self._renewed_at is not None and self._silent_s(self._renewed_at) >= self._settings.worker_lease_s

    def _silent_s(self, renewed_at: float) -> float:
        return boot_time() - renewed_at

    # -- in the thread -------------------------------------------------------------------------------

    async def beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Beat until cancelled. *loop* is the worker's event loop, where lost leases are told."""
        renew_at = 0.0
        look_around_at = time.monotonic() + LOOK_AROUND_S
        while True:
            now = time.monotonic()
            await reach(Point.BEAT)
            if self._has_lapsed():
                renew_at = now  # After a halt of the process this may come before the loop's look: see what was lost.
            try:
                await self._beat_once()
                if now >= renew_at:
                    await self._renew_jobs(loop)
                    renew_at = now + self._settings.job_lease_s / 3
                if now >= look_around_at:
                    look_around_at = now + LOOK_AROUND_S
                    await self._link.look_around(wait_s=self._settings.beat_s / 2)
            except DatabaseError as error:
                await self.pulse.pause(error)
                continue
            self.pulse.worked()
            loop.call_soon_threadsafe(self._registered.set)
            # From the beginning of this beat on, or a silent server that is looked at would make the next one late.
            await asyncio.sleep(now + self._settings.beat_s * random.uniform(0.9, 1.0) - time.monotonic())

    async def _beat_once(self) -> None:
        sent_at = boot_time()
        async with self._link.lend() as conn:
            await self._store.beat(conn, self._worker, self._settings.worker_lease_s)
        self._renewed_at = sent_at

    async def _renew_jobs(self, loop: asyncio.AbstractEventLoop) -> None:
        held = [Owned(one.claimed.id, one.claimed.fence) for one in self._in_hand()]
        if not held:
            return
        async with self._link.lend() as conn:
            kept = await self._store.renew_jobs(conn, self._worker.worker_id, held, self._settings.job_lease_s)
        lost = [one for one in held if one.id not in kept]
        if lost:
            loop.call_soon_threadsafe(self._on_lost, lost)
