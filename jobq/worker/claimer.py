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
from jobq.core.position import Position
from jobq.db.connect import Link
from jobq.db.store import Sleeper, Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.settings import WorkerSettings
from jobq.telemetry.events import Emit
from jobq.telemetry.measured import ClaimAnswered, WakeUp
from jobq.worker.executor import Executor
from jobq.worker.faults import Point, reach
from jobq.worker.heartbeat import Heartbeat
from jobq.worker.pace import Ahead, Pace, Rest
from jobq.worker.pulse import Pulse
from jobq.worker.quarantine import Quarantine
from jobq.worker.settler import Settler
from jobq.worker.strays import Strays

MAX_CLAIM = 1000
"""Jobs in one claim: larger batches gain nothing measurable and hold their row locks longer."""

SLEEP_FOR_S = 15.0
"""How long a request to be notified counts, or three polls; it is renewed when a third of it has passed."""


UNHEARD_POLL_S = 0.25
"""How often a loop looks that nothing can wake: four empty claims a second cost the server a thousandth of a core."""


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
        heartbeat: Heartbeat,
        quarantine: Quarantine,
        strays: Strays,
        hears: Callable[[], bool],
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
        self._heartbeat = heartbeat
        self._quarantine = quarantine
        self._strays = strays
        self._hears = hears
        self._sleeper = Sleeper(queue, worker_id, executor.name)
        self._emit = emit
        self.pulse = Pulse(f"claims of {queue}", bound_s=3 * settings.poll_s + link.patience_s, emit=emit)
        self.position = Position()
        self._pace = Pace()
        self._ahead = Ahead(MAX_CLAIM)
        self._wake = asyncio.Event()
        self._source = WakeUp.POLL
        self._asleep_since: float | None = None
        self._sleep_for_s = max(SLEEP_FOR_S, 3 * settings.poll_s)
        self._claiming = False

    @property
    def is_claiming(self) -> bool:
        """Whether a claim is under way, whose jobs are neither ready nor running for anybody to see."""
        return self._claiming

    @property
    def is_asleep(self) -> bool:
        """Whether the loop asks to be notified, because few jobs come."""
        return self._asleep_since is not None

    @property
    def kinds(self) -> list[str]:
        """The kinds that this loop takes."""
        return self._executor.kinds

    def wake(self, source: WakeUp) -> None:
        """Tell the loop that there may be work, and whence that is known."""
        self._source = source
        self._wake.set()

    async def run(self) -> None:
        """Claim until cancelled."""
        while True:
            self.pulse.rest()
            await self._executor.wait_room()
            await self._settler.wait_room()
            await self._heartbeat.wait_fresh()
            await self._quarantine.wait_open()
            self.pulse.begin()
            try:
                await self._look()
            except BaseException as error:
                self._strays.suspect()
                if not isinstance(error, DatabaseUnavailableError | ConflictError):
                    raise
                self._asleep_since = None
                await self.pulse.pause(error)
            else:
                self.pulse.worked()

    async def _look(self) -> None:
        self._wake.clear()
        await reach(Point.CLAIM)
        limit = min(self._executor.room, MAX_CLAIM)
        asked_at = time.monotonic()
        found = await self._claim(limit)
        now = time.monotonic()
        self._executor.ahead = self._ahead.after(finished=self._executor.finished, took_s=now - asked_at, now=now)
        match self._pace.after(found, limit, now=now):
            case Rest.LOOK_AGAIN:
                # At once: the next claim is under way while what this one brought begins to run. In a flood this loop
                # waits for nothing but claims, which are shielded, so a stop has to be looked for.
                await anyio.lowlevel.checkpoint_if_cancelled()
            case Rest.POLL:
                await self._stay_awake()
                await anyio.sleep(self._settings.busy_poll_s)
                self._source = WakeUp.BUSY_POLL
            case Rest.SLEEP if self._hears():
                if not await self._fall_asleep():
                    await self._sleep(self._settings.poll_s)
            case Rest.SLEEP:
                await self._stay_awake()
                await self._sleep(unheard_poll_s(self._settings))

    async def _claim(self, limit: int) -> int:
        # Shielded: what the server has committed must be started or handed back, also when the loop is cancelled
        # meanwhile. The link's deadline bounds it.
        with anyio.CancelScope(shield=True):
            self._claiming = True
            source, self._source = self._source, WakeUp.AGAIN
            try:
                async with self._link.lend() as conn:
                    if not self._quarantine.is_open:
                        return 0
                    await self._strays.release(conn)
                    asked_at = time.monotonic()
                    jobs = await self._store.claim_jobs(
                        conn,
                        queue=self.queue,
                        kinds=self._executor.kinds,
                        limit=limit,
                        worker_id=self._worker_id,
                        lease_s=self._settings.job_lease_s,
                        marks=self.position.before_claim(),
                    )
                    took_s = time.monotonic() - asked_at
                    self.position.after_claim(jobs, limit=limit, took_s=took_s)
                    await reach(Point.AFTER_CLAIM_COMMIT)
                # At once: whoever has the link next, for strays or a suspect, must see these in hand.
                if self._stopping():
                    self._executor.hand_back(jobs)
                else:
                    self._executor.start(jobs)
            finally:
                self._claiming = False
        self._emit(ClaimAnswered(self.queue, source, len(jobs), took_s))
        return len(jobs)

    async def _fall_asleep(self) -> bool:
        """Ask to be notified, if that is not so already. Returns whether the caller has to look once more."""
        now = time.monotonic()
        if self._asleep_since is not None and now - self._asleep_since < self._sleep_for_s / 3:
            return False
        first_time = self._asleep_since is None
        async with self._link.lend() as conn:
            await self._store.fall_asleep(conn, self._sleeper, self._sleep_for_s)
        self._asleep_since = now
        return first_time

    async def _stay_awake(self) -> None:
        if self._asleep_since is not None:
            async with self._link.lend() as conn:
                await self._store.wake_up(conn, self._sleeper)
            self._asleep_since = None

    async def _sleep(self, seconds: float) -> None:
        with anyio.move_on_after(seconds * (0.9 + random.random() / 5)):
            await self._wake.wait()
            return
        self._source = WakeUp.POLL


def unheard_poll_s(settings: WorkerSettings) -> float:
    """Return how long a loop sleeps that no notification can wake."""
    return min(settings.poll_s, UNHEARD_POLL_S)
