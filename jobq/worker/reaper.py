"""Takes back the jobs of workers that fell silent, and what live workers forgot. In every worker, no leader.

A lapse counts at its second sighting, one look after the first. After an outage everybody gets to renew first: nothing
counts until the slowest heartbeat has had time to come back. The reaper judges nothing: the next claim that knows the
kind does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from jobq.core.job import JobId, WorkerId
from jobq.db.connect import Link
from jobq.db.pages import Pages
from jobq.db.store import Owned, Reaped, Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.settings import WorkerSettings
from jobq.telemetry.events import Emit, JobReaped, WorkerReaped
from jobq.worker.faults import Point, reach
from jobq.worker.pulse import LONGEST_PAUSE_S, Pulse

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

PAGE = 500
"""Jobs in one statement: their locks are held for milliseconds."""

CRASH_PAUSE_SHARE = 0.1
"""Until a reaped job is ready it waits at most this share of the worker's lease: 2 s of the default."""

SCAN_SHARE = 0.05
"""The scan for orphans takes at most this share of the time."""


class Reaper:
    """The reaping loop of one worker."""

    def __init__(
        self,
        *,
        store: Store,
        link: Link,
        worker_id: WorkerId,
        settings: WorkerSettings,
        on_reaped: Callable[[float], None],
        emit: Emit,
    ) -> None:
        self._store = store
        self._link = link
        self._worker_id = worker_id
        self._settings = settings
        self._on_reaped = on_reaped
        self._pages = Pages(link, PAGE)
        self._pause_s = CRASH_PAUSE_SHARE * settings.worker_lease_s
        self._emit = emit
        self.pulse = Pulse("reaper", bound_s=3 * settings.beat_s + link.patience_s, emit=emit)
        self._generation = 0
        self._renewed_by = 0.0
        self._lapsed_workers: set[WorkerId] = set()
        self._orphans: dict[JobId, int] = {}
        self._scan_at = 0.0

    async def run(self) -> None:
        """Look once a beat until cancelled."""
        while True:
            await anyio.sleep(self._settings.beat_s)
            await reach(Point.REAP)
            try:
                await self._reap_workers()
                if time.monotonic() >= self._scan_at:
                    await self._reap_orphans()
            except (DatabaseUnavailableError, ConflictError) as error:
                if isinstance(error, DatabaseUnavailableError):
                    self._let_all_renew()
                await self.pulse.pause(error)
            else:
                self.pulse.worked()

    async def _reap_workers(self) -> None:
        async with self._link.lend() as conn:
            lapsed = set(await self._store.list_lapsed_workers(conn))
        if not self._all_could_renew():
            lapsed = set()
        sighted_twice = (lapsed & self._lapsed_workers) - {self._worker_id}
        self._lapsed_workers = lapsed
        for worker_id in sighted_twice:
            taken = await self._take_all(worker_id)
            async with self._link.lend() as conn:
                gone = await self._store.forget_worker(conn, worker_id)
            if taken or gone:
                self._emit(WorkerReaped(worker_id, taken))

    async def _take_all(self, worker_id: WorkerId) -> int:
        async def take(conn: AnyConnection, limit: int) -> int:
            page = await self._store.reap_worker(conn, worker_id, pause_s=self._pause_s, limit=limit)
            self._report(page)
            return len(page)

        taken = 0
        async for found in self._pages.each(take):
            self.pulse.begin()
            taken += found or 0
        return taken

    async def _reap_orphans(self) -> None:
        started = time.monotonic()
        async with self._link.lend() as conn:
            found = {orphan.id: orphan.fence for orphan in await self._store.list_orphans(conn, PAGE)}
        if not self._all_could_renew():
            found = {}
        sighted_twice = [Owned(one, fence) for one, fence in found.items() if self._orphans.get(one) == fence]
        self._orphans = found
        if sighted_twice:
            async with self._link.lend() as conn:
                self._report(await self._store.reap_orphans(conn, sighted_twice, pause_s=self._pause_s))
        now = time.monotonic()
        self._scan_at = now + (now - started) / SCAN_SHARE

    def _all_could_renew(self) -> bool:
        """Say whether nobody can be late for want of a database: not so for a while after it was away."""
        if self._link.generation != self._generation:
            if self._generation:
                self._let_all_renew()
            self._generation = self._link.generation
        return time.monotonic() >= self._renewed_by

    def _let_all_renew(self) -> None:
        self._renewed_by = time.monotonic() + LONGEST_PAUSE_S + self._settings.beat_deadline_s

    def _report(self, page: list[Reaped]) -> None:
        for job in page:
            self._emit(JobReaped(job.id, job.kind, job.attempt))
        if page:
            self._on_reaped(self._pause_s)
