"""Enqueues the ticks of recurring entries. Every worker does, and none leads.

What the code declares is written at the start. Then the loop looks at what is due, decides (`core/recurring.py`), and
writes each decision by a statement that moves the entry on and adds its jobs, or does nothing if another worker was
first. So any number of workers, and their deaths between any two statements, lose no tick and double none. Each entry
fails alone: it is said, noted in its row, and tried again. Where there is no entry, all it costs is a look a minute.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from datetime import timedelta

import anyio

from jobq.core.recurring import PUNCTUAL, Decision, DueEntry, EntryRow, decide
from jobq.db.connect import Link, is_refusal
from jobq.db.recurring import RecurringStore
from jobq.errors import ConflictError, DatabaseError, DatabaseUnavailableError, RecurringError
from jobq.telemetry.events import Emit
from jobq.telemetry.recurring import (
    RecurringCaughtUp,
    RecurringChanged,
    RecurringFailed,
    RecurringMissed,
    RecurringSkipped,
)
from jobq.worker.faults import Point, reach
from jobq.worker.pulse import Pulse

A_PAGE = 100
"""Entries of one look. Workers take them in an order of their own, so that they seldom want the same one."""

NONE_S = 60.0
"""Between looks where there is no entry: so late is noticed the first that is added while a worker runs."""

TAKEN_S = 0.5
"""Until the next look after one whose entries others were moving on, or had locked."""

ALL = "entries"
"""In the place of a name, where none can be seen."""

CONFIRM_S = 300.0
RETRY_S = 10.0


class Recurring:
    """The loop of one worker. *declared* is what its code asks for; *every_s* bounds the time between two looks."""

    def __init__(
        self, *, store: RecurringStore, link: Link, declared: Sequence[EntryRow], every_s: float, emit: Emit
    ) -> None:
        self._store = store
        self._link = link
        self._undeclared = list(declared)
        self._names = [entry.name for entry in declared]
        self._every_s = every_s
        self._emit = emit
        self._confirmed_at = -math.inf
        self._told: dict[str, str] = {}
        self.pulse = Pulse("recurring", bound_s=link.patience_s, emit=emit)

    async def run(self) -> None:
        """Declare, and then look again and again, until cancelled."""
        while True:
            self.pulse.begin()
            try:
                if self._undeclared:
                    await self._declare()
                await self._confirm()
                pause_s = await self._look()
            except DatabaseError as error:
                if self._names or not is_refusal(error):
                    await self.pulse.pause(error)
                    continue
                # Who declares nothing is ready for work without the right to look.
                self._fail(ALL, None, f"{error}: grant the roles anew, by jobq roles")
                self.pulse.worked()
                self.pulse.rest()
                await anyio.sleep(NONE_S)
            else:
                self.pulse.worked()
                self.pulse.rest()
                await anyio.sleep(pause_s)

    async def _declare(self) -> None:
        changed, failed = [], []
        for entry in self._undeclared:
            try:
                async with self._link.lend() as conn:
                    if await self._store.declare_recurring(conn, entry, is_code=True):
                        changed.append(entry.name)
            except (DatabaseUnavailableError, ConflictError):
                raise
            except DatabaseError as error:
                failed.append(entry)
                self._fail(entry.name, None, error)
        self._undeclared = failed
        if changed:
            self._emit(RecurringChanged(changed))

    async def _confirm(self) -> None:
        if self._names and time.monotonic() - self._confirmed_at > CONFIRM_S:
            async with self._link.lend() as conn:
                await self._store.confirm_recurring(conn, self._names)
            self._confirmed_at = time.monotonic()

    async def _look(self) -> float:
        """Decide about all that is due, and return how many seconds to wait for the next."""
        async with self._link.lend() as conn:
            wait_s = await self._store.foresee_recurring(conn)
        if wait_s is None:
            return NONE_S * random.uniform(0.9, 1.0)
        if wait_s > 0:
            return min(wait_s, self._every_s * random.uniform(0.5, 1.0))
        async with self._link.lend() as conn:
            due = await self._store.list_due_recurring(conn, A_PAGE)
        random.shuffle(due)
        moved = 0
        for entry in due:
            moved += await self._decide(entry)
            self.pulse.worked()
        return 0.0 if moved else random.uniform(0.0, TAKEN_S)

    async def _decide(self, entry: DueEntry) -> bool:
        """Decide about one entry, and return whether it was moved on here."""
        decision = None
        try:
            decision = decide(entry)
            await reach(Point.BEFORE_FIRE)
            async with self._link.lend() as conn:
                is_ours = await self._store.fire_recurring(conn, entry, decision) is not None
        except (DatabaseUnavailableError, ConflictError):
            raise
        except (RecurringError, DatabaseError) as error:
            self._fail(entry.name, decision, error)
            async with self._link.lend() as conn:
                return await self._store.fault_recurring(conn, entry, str(error), pause_s=RETRY_S)
        self._told.pop(entry.name, None)
        if is_ours:
            self._tell(entry, decision)
        return is_ours

    def _tell(self, entry: DueEntry, decision: Decision) -> None:
        if decision.fire and (decision.covered or decision.late_s > PUNCTUAL.total_seconds()):
            tick = entry.now - timedelta(seconds=decision.late_s)
            self._emit(RecurringCaughtUp(entry.name, tick, decision.late_s, decision.covered))
        if decision.missed_tick is not None:
            self._emit(RecurringMissed(entry.name, decision.missed_tick, decision.missed))
        if decision.skipped:
            self._emit(RecurringSkipped(entry.name, decision.decided_until, decision.skipped))

    def _fail(self, name: str, decision: Decision | None, error: Exception | str) -> None:
        """Say that an entry failed; once, as long as it fails for the same reason."""
        if self._told.get(name) != str(error):
            self._told[name] = str(error)
            self._emit(RecurringFailed(name, decision.fire[0] if decision and decision.fire else None, str(error)))
