"""Looks for ready jobs that the claim loops have passed: committed late, or locked when the claim came by."""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio

from jobq.core.position import LOOK_EVERY_S, Mark
from jobq.db.connect import Link
from jobq.db.store import Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.telemetry.events import Emit
from jobq.telemetry.measured import WakeUp
from jobq.worker.claimer import Claimer
from jobq.worker.pulse import Pulse


class LookBehind:
    """One for all claim loops of a worker, beside them, so that no claim waits for a long walk."""

    def __init__(self, *, store: Store, link: Link, claimers: Sequence[Claimer], emit: Emit) -> None:
        self._store = store
        self._link = link
        self._claimers = claimers
        self.pulse = Pulse("look behind", bound_s=LOOK_EVERY_S + len(claimers) * link.patience_s, emit=emit)

    async def run(self) -> None:
        """Look once a second, as far back as is not dear, until cancelled."""
        while True:
            self.pulse.rest()
            await anyio.sleep(LOOK_EVERY_S)
            self.pulse.begin()
            try:
                for claimer in self._claimers:
                    since = claimer.position.next_look(is_asleep=claimer.is_asleep, now=time.monotonic())
                    if since is not None:
                        await self._look(claimer, since)
            except (DatabaseUnavailableError, ConflictError) as error:
                await self.pulse.pause(error)
            else:
                self.pulse.worked()

    async def _look(self, claimer: Claimer, since: Sequence[Mark]) -> None:
        async with self._link.lend() as conn:
            asked_at = time.monotonic()
            nothing_until = await self._store.find_passed(
                conn, queue=claimer.queue, kinds=claimer.kinds, since=since, marks=claimer.position.marks
            )
        now = time.monotonic()
        claimer.position.after_look(nothing_until, since=since, took_s=now - asked_at, now=now)
        if nothing_until is None:
            claimer.wake(WakeUp.LOOK_BEHIND)
