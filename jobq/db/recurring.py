"""Recurring entries in the database: declaring them, moving them on, and what people do with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from jobq.core.job import JobId
from jobq.core.recurring import Decision, DueEntry, EntryRow
from jobq.db.connect import driver_errors
from jobq.db.statements import load_statements

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection


class EntryNow(msgspec.Struct, frozen=True):
    """How an entry stands, as the view `v1_recurring` says; *now* is the database's time.

    *state* is `well`, `held`, `missed`, `late`, `overdue`, `faulty` or `paused`. *should_have_run_at* is the tick that
    nobody enqueued, or whose job nobody has started. *is_forsaken*: no worker's code declares it any more.
    """

    name: str
    expression: str
    zone: str
    kind: str
    queue: str
    next_tick: datetime | None
    last_tick: datetime | None
    last_job_id: int | None
    missed: int
    skipped: int
    state: str
    should_have_run_at: datetime | None
    fault: str | None
    paused_at: datetime | None
    paused_by: str | None
    paused_why: str | None
    is_forsaken: bool
    now: datetime


class RecurringStore:
    """The statements about the recurring entries of one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._sql = load_statements(schema)

    # -- what is asked for ---------------------------------------------------------------------------

    async def declare_recurring(self, conn: AnyConnection, entry: EntryRow, *, is_code: bool) -> bool:
        """Add an entry, or change what it asks for. Returns whether it did not ask for just that already."""
        with driver_errors():
            changed = await conn.fetchval(
                self._sql["declare_recurring"],
                entry.name,
                entry.expression,
                entry.zone,
                entry.kind,
                entry.payload,
                entry.queue,
                entry.priority,
                entry.max_attempts,
                entry.catch_up,
                entry.catch_up_within_s,
                entry.catch_up_cap,
                entry.overlap,
                is_code,
            )
        return changed is not None

    async def confirm_recurring(self, conn: AnyConnection, names: Sequence[str]) -> None:
        """Say that code still declares these entries."""
        with driver_errors():
            await conn.execute(self._sql["confirm_recurring"], names)

    async def remove_recurring(self, conn: AnyConnection, name: str) -> bool:
        """Drop an entry. Returns whether it was there."""
        return await self._did(conn, "remove_recurring", name)

    async def pause_recurring(self, conn: AnyConnection, name: str, *, by: str, why: str) -> bool:
        """Enqueue no tick any more. Returns whether it was there and not paused."""
        return await self._did(conn, "pause_recurring", name, by, why)

    async def resume_recurring(self, conn: AnyConnection, name: str) -> bool:
        """Go on with the next tick. Returns whether it was paused."""
        return await self._did(conn, "resume_recurring", name)

    async def run_recurring(self, conn: AnyConnection, name: str) -> JobId | None:
        """Enqueue its job now. Returns the id, or None if it is not there, or may not overlap what is unfinished."""
        with driver_errors():
            job_id: JobId | None = await conn.fetchval(self._sql["run_recurring"], name)
        return job_id

    async def _did(self, conn: AnyConnection, statement: str, *values: str) -> bool:
        with driver_errors():
            return await conn.fetchval(self._sql[statement], *values) is not None

    # -- the ticks -----------------------------------------------------------------------------------

    async def list_due_recurring(self, conn: AnyConnection, limit: int) -> list[DueEntry]:
        """Return the entries that have to be looked at, at most *limit*."""
        with driver_errors():
            return [DueEntry(*row) for row in await conn.fetch(self._sql["list_due_recurring"], limit)]

    async def foresee_recurring(self, conn: AnyConnection) -> float | None:
        """Return in how many seconds an entry has to be looked at, or None if there is none."""
        with driver_errors():
            wait_s: float | None = await conn.fetchval(self._sql["foresee_recurring"])
        return wait_s

    async def fire_recurring(self, conn: AnyConnection, entry: DueEntry, decision: Decision) -> list[JobId] | None:
        """Move an entry on and enqueue its ticks, in one. Returns the jobs, or None if somebody else was first."""
        with driver_errors():
            row = await conn.fetchrow(
                self._sql["fire_recurring"],
                entry.name,
                entry.revision,
                decision.fire,
                decision.held_tick,
                decision.decided_until,
                decision.next_tick,
                decision.look_at,
                decision.missed,
                decision.missed_tick,
                decision.skipped,
            )
        assert row is not None
        return row[1] if row[0] else None

    async def fault_recurring(self, conn: AnyConnection, entry: DueEntry, fault: str, *, pause_s: float) -> bool:
        """Note why an entry failed, for *pause_s* seconds. Returns whether it was as it was read."""
        with driver_errors():
            return (
                await conn.fetchval(self._sql["fault_recurring"], entry.name, entry.revision, fault, pause_s)
                is not None
            )

    # -- reading -------------------------------------------------------------------------------------

    async def list_recurring(self, conn: AnyConnection) -> list[EntryNow]:
        """Return how each entry stands, by name."""
        with driver_errors():
            return [EntryNow(*row) for row in await conn.fetch(self._sql["list_recurring"])]
