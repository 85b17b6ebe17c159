"""Gives the last try of a suspected killer a worker of its own: nothing else runs, so a crash names its cause.

Alone also means that no outcome is unwritten, before and after: a job that is done, but not on record as done when its
successor kills the worker, would be blamed for it.

While it waits for its turn nothing new is claimed here. It does not wait for ever: if the running jobs take too long,
it is handed back, attempt returned, for whoever is idle. So are at once those that would stand in a long line: what
dies with a killer are all jobs of its worker, and they come back together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import anyio

from jobq.core.job import ClaimedJob, WorkerId
from jobq.db.connect import Link
from jobq.db.store import Owned, Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.telemetry.events import Emit, LeaseLost, SuspectsHandedBack
from jobq.worker.executor import Executor
from jobq.worker.pulse import Pulse
from jobq.worker.settler import Settler

KEPT = 5
"""How many suspects wait here for their turn; more are for other workers."""

PATIENCE_S = 30.0
"""How long the worker claims nothing for the sake of a suspect."""

BOUND_S = 30.0
"""How long recording that a suspect runs alone may take, with a database that answers late."""

QUIET_CHECK_S = 0.01

NAMED = 3
"""How many of the jobs that are in the way are named."""

LATER_S = 5.0
"""A suspect that found no quiet moment comes back after this."""


class Quarantine:
    """The suspects of one worker, one after the other."""

    def __init__(
        self,
        *,
        store: Store,
        link: Link,
        worker_id: WorkerId,
        executors: Sequence[Executor],
        settler: Settler,
        emit: Emit,
    ) -> None:
        self._store = store
        self._link = link
        self._worker_id = worker_id
        self._executors = executors
        self._settler = settler
        self._emit = emit
        self.pulse = Pulse("quarantine", bound_s=BOUND_S, emit=emit)
        self._suspects: deque[tuple[Executor, ClaimedJob]] = deque()
        self._more = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()

    def put(self, executor: Executor, claimed: ClaimedJob) -> None:
        """Take a suspect over, and let nothing else be claimed until it has run. One too many is handed back."""
        if len(self._suspects) >= KEPT:
            executor.hand_back([claimed])
            return
        self._suspects.append((executor, claimed))
        self._open.clear()
        self._more.set()

    @property
    def is_open(self) -> bool:
        """Whether anything may be claimed."""
        return self._open.is_set()

    async def wait_open(self) -> None:
        """Wait until no suspect is here."""
        await self._open.wait()

    def in_hand(self) -> list[ClaimedJob]:
        """Return the suspects that wait. May be asked from another thread."""
        return [claimed for _, claimed in list(self._suspects)]

    def hand_back_all(self) -> None:
        """Release the suspects that wait, at a stop or for want of quiet."""
        while self._suspects:
            executor, claimed = self._suspects.popleft()
            executor.hand_back([claimed], delay_s=LATER_S)
        self._open.set()

    async def run(self) -> None:
        """Run suspects alone until cancelled."""
        while True:
            self._more.clear()
            while self._suspects:
                self.pulse.rest()
                with anyio.move_on_after(PATIENCE_S) as waiting:
                    await self._wait_quiet()
                if waiting.cancelled_caught:
                    self._emit(self._no_quiet())
                    self.hand_back_all()
                else:
                    await self._run_first()
            self._open.set()
            self.pulse.rest()
            await self._more.wait()

    def _is_quiet(self) -> bool:
        return not (self._settler.backlog or any(executor.runs_anything for executor in self._executors))

    def _no_quiet(self) -> SuspectsHandedBack:
        attempts = [attempt for executor in self._executors for attempt in executor.attempts]
        oldest = sorted(attempts, key=lambda attempt: attempt.started)[:NAMED]
        return SuspectsHandedBack(
            suspects=[f"{one.kind} {one.id}" for one in self.in_hand()],
            waited_s=PATIENCE_S,
            running=[f"{one.claimed.kind} {one.claimed.id}" for one in oldest],
            unwritten=self._settler.backlog,
        )

    async def _wait_quiet(self) -> None:
        while not self._is_quiet():
            for executor in self._executors:
                await executor.wait_idle()
            await self._settler.wait_settled()
            await anyio.sleep(QUIET_CHECK_S)  # not quiet for all that: a handler that was given up is not waited for

    async def _run_first(self) -> None:
        executor, claimed = self._suspects[0]
        self.pulse.begin()
        try:
            # On the link of the claims: while it is lent here none is under way, and until this is open none begins.
            async with self._link.lend() as conn:
                if not self._is_quiet():
                    return
                owned = await self._store.isolate_job(conn, self._worker_id, Owned(claimed.id, claimed.fence))
        except (DatabaseUnavailableError, ConflictError) as error:
            await self.pulse.pause(error)
            return
        self.pulse.worked()
        self._suspects.popleft()
        if owned:
            self.pulse.rest()
            executor.start_one(claimed)
            await executor.wait_idle()
            await self._settler.wait_settled()
        else:
            self._emit(LeaseLost(claimed.id, claimed.kind, claimed.attempt, claimed.queue))
