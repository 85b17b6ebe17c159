"""Recurring entries for the tests: one that is enqueued each minute, and what a worker does about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jobq import NewJob
from jobq.core.job import JobId
from jobq.core.recurring import Decision, DueEntry, EntryRow, decide, make_entry
from jobq.db.recurring import EntryNow, RecurringStore
from tests.db.rows import KIND, QUEUE, Rows

NAME = "report"
SOON = timedelta(seconds=50)
"""How far the next tick lies ahead, whatever the time: the minutes of the test and of the clock are not the same."""


def entries(rows: Rows) -> RecurringStore:
    """The statements about the entries of a test's schema."""
    return RecurringStore(rows.store.schema)


def entry_row(expression: str = "* * * * *", **stated: Any) -> EntryRow:
    """An entry of the usual kind, but for what is *stated*."""
    options: dict[str, Any] = {
        "zone": "UTC",
        "catch_up": "last",
        "within": None,
        "cap": None,
        "overlap": "allow",
        "job": NewJob(kind=KIND, payload=b'{"order_id": 7}', home=QUEUE),
        "now": datetime.now(UTC),
        **stated,
    }
    return make_entry(NAME, expression, **options)


async def add_entry(rows: Rows, expression: str = "* * * * *", **stated: Any) -> bool:
    """Let code declare the entry."""
    return await entries(rows).declare_recurring(rows.conn, entry_row(expression, **stated), is_code=True)


async def due(rows: Rows) -> DueEntry:
    """Return the entry, which is due."""
    (entry,) = await entries(rows).list_due_recurring(rows.conn, 10)
    return entry


def ahead(entry: DueEntry) -> Decision:
    """The decision to enqueue a tick that comes soon."""
    tick = entry.now + SOON
    return Decision(fire=[tick], held_tick=None, decided_until=tick, next_tick=tick + SOON, look_at=tick)


async def fire(rows: Rows) -> JobId:
    """Enqueue a tick that comes soon, and return its job."""
    entry = await due(rows)
    fired = await entries(rows).fire_recurring(rows.conn, entry, ahead(entry))
    assert fired is not None
    (job_id,) = fired
    return job_id


async def look(rows: Rows) -> list[JobId]:
    """Do what a worker does about the entry that is due, and return its jobs."""
    entry = await due(rows)
    fired = await entries(rows).fire_recurring(rows.conn, entry, decide(entry))
    assert fired is not None
    return fired


async def stands(rows: Rows) -> EntryNow:
    """Return how the entry stands."""
    (entry,) = await entries(rows).list_recurring(rows.conn)
    return entry


async def ago(rows: Rows, delay: timedelta) -> None:
    """Let everything that the entry remembers have been so long ago."""
    await rows.run(
        """
        update @schema@.recurring
        set decided_until = decided_until - $1::interval, look_at = look_at - $1::interval,
            next_tick = next_tick - $1::interval, last_tick = last_tick - $1::interval
        """,
        delay,
    )
