"""One claim loop: takes ready jobs of one queue for one executor, never more than can start now.

It lowers its wake-up flag before it looks, so that a notification that comes during the look is not lost;
and after it has asked to be notified it looks once more, because a job committed in between saw no sleeper.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import anyio
import anyio.lowlevel

from jobq.core.job import WorkerId
from jobq.db.connect import Link
from jobq.db.store import Sleeper, Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.settings import WorkerSettings
from jobq.telemetry.events import Emit
from jobq.worker.executor import Executor
from jobq.worker.outage import Outage
from jobq.worker.pace import Pace, Rest
from jobq.worker.settler import Settler

MAX_CLAIM = 500
"""Jobs in one claim: larger batches gain nothing measurable and hold their row locks longer."""

SLEEP_FOR_S = 15.0
"""How long a request to be notified counts; it is renewed when a third of it has passed."""


class Claimer:
    """The claim loop of one queue and executor."""

    def __init__(
        self,
        *,
        queue: str,
        executor: Executor,
        settler: Settler,
        store: Store,
        link: Link,
        worker_id: WorkerId,
        settings: WorkerSettings,
        stopping: Callable[[], bool],
        emit: Emit,
    ) -> None:
        self.queue = queue
        self._executor = executor
        self._settler = settler
        self._store = store
        self._link = link
        self._worker_id = worker_id
        self._settings = settings
        self._stopping = stopping
        self._sleeper = Sleeper(queue, worker_id, executor.name)
        self._outage = Outage(f"claims of {queue}", emit)
        self._pace = Pace()
        self._wake = asyncio.Event()
        self._asleep_since: float | None = None
        self._claiming = False

    @property
    def is_claiming(self) -> bool:
        """Whether a claim is under way, whose jobs are neither ready nor running for anybody to see."""
        return self._claiming

    @property
    def kinds(self) -> list[str]:
        """The kinds that this loop takes."""
        return self._executor.kinds

    def wake(self) -> None:
        """Tell the loop that there may be work."""
        self._wake.set()

    async def run(self) -> None:
        """Claim until cancelled."""
        while True:
            await self._executor.wait_free()
            await self._settler.wait_room()
            try:
                await self._look()
            except (DatabaseUnavailableError, ConflictError) as error:
                self._asleep_since = None
                await self._outage.pause(error)
            else:
                self._outage.over()

    async def _look(self) -> None:
        self._wake.clear()
        limit = min(self._executor.free, MAX_CLAIM)
        found = await self._claim(limit)
        match self._pace.after(found, limit, now=time.monotonic()):
            case Rest.LOOK_AGAIN:
                await anyio.lowlevel.checkpoint()
            case Rest.POLL:
                await self._stay_awake()
                await anyio.sleep(self._settings.busy_poll_s)
            case Rest.SLEEP:
                if not await self._fall_asleep():
                    await self._sleep()

    async def _claim(self, limit: int) -> int:
        # Shielded: what the server has committed must be started or handed back, also when the loop is cancelled
        # meanwhile. The link's deadline bounds it.
        with anyio.CancelScope(shield=True):
            self._claiming = True
            try:
                async with self._link.lend() as conn:
                    jobs = await self._store.claim_jobs(
                        conn,
                        queue=self.queue,
                        kinds=self._executor.kinds,
                        limit=limit,
                        worker_id=self._worker_id,
                        lease_s=self._settings.job_lease_s,
                    )
                if self._stopping():
                    self._executor.hand_back(jobs)
                else:
                    self._executor.start(jobs)
            finally:
                self._claiming = False
        return len(jobs)

    async def _fall_asleep(self) -> bool:
        """Ask to be notified, if that is not so already. Returns whether the caller has to look once more."""
        now = time.monotonic()
        if self._asleep_since is not None and now - self._asleep_since < SLEEP_FOR_S / 3:
            return False
        first_time = self._asleep_since is None
        async with self._link.lend() as conn:
            await self._store.fall_asleep(conn, self._sleeper, SLEEP_FOR_S)
        self._asleep_since = now
        return first_time

    async def _stay_awake(self) -> None:
        if self._asleep_since is not None:
            async with self._link.lend() as conn:
                await self._store.wake_up(conn, self._sleeper)
            self._asleep_since = None

    async def _sleep(self) -> None:
        with anyio.move_on_after(self._settings.poll_s * (0.9 + random.random() / 5)):
            await self._wake.wait()
