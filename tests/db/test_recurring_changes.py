"""What follows from a change of a recurring entry, by code or by SQL, and which the table refuses."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq import NewJob
from jobq.core.recurring import decide
from tests.db.entries import NAME, add_entry, ago, ahead, due, entries, fire, stands
from tests.db.observe import Blocked
from tests.db.rows import KIND, QUEUE, Rows

if TYPE_CHECKING:
    from tests.conftest import Conn

CHANGES = {
    "expression": "'0 0 1 1 *'",
    "zone": "'Europe/Berlin'",
    "kind": "'other'",
    "payload": "'{}'",
    "queue": "'other'",
    "priority": "1",
    "max_attempts": "1",
    "overlap": "'skip'",
    "paused_at": "now(), paused_by = 'me', paused_why = 'because'",
}


@pytest.mark.parametrize("column", CHANGES)
async def test_a_change_withdraws_what_waits_for_its_tick(rows: Rows, column: str) -> None:
    """By code, by SQL or by the command: at once, and the tick is decided anew by what the entry says now."""
    await add_entry(rows)
    await fire(rows)

    await rows.run(f"update @schema@.recurring set {column} = {CHANGES[column]}")

    assert await rows.value("select count(*) from @schema@.job") == 0
    if column == "paused_at":
        assert await entries(rows).list_due_recurring(rows.conn, 10) == []
        assert (await stands(rows)).state == "paused"
    else:
        entry = await due(rows)
        assert timedelta(0) <= entry.now - entry.decided_until < timedelta(seconds=30)
    if column == "kind":
        job_id = await fire(rows)
        assert await rows.value("select kind from @schema@.job where id = $1", job_id) == "other"


async def test_what_is_declared_as_it_was_changes_nothing(rows: Rows) -> None:
    """Every worker says it at its start: a job that waits for its tick stays, and so do a pause and the revision."""
    await add_entry(rows)
    job_id = await fire(rows)
    before = await rows.row("select * from @schema@.recurring")

    assert not await add_entry(rows)

    assert await rows.row("select * from @schema@.recurring") == before
    assert await rows.value("select id from @schema@.job") == job_id


async def test_a_job_whose_tick_has_come_is_not_withdrawn(rows: Rows) -> None:
    """It is running, or is about to: what is asked for now holds from the next tick on."""
    await add_entry(rows)
    first = await fire(rows)
    await rows.run("update @schema@.job set run_at = now() - interval '1 s'")

    await add_entry(rows, "0 0 1 1 *")

    assert await rows.value("select id from @schema@.job") == first


async def test_a_job_that_has_started_once_is_not_withdrawn(rows: Rows) -> None:
    """It waits for its second attempt, and not for its tick."""
    await add_entry(rows)
    first = await fire(rows)
    await rows.run("update @schema@.job set fence = 1")

    await entries(rows).remove_recurring(rows.conn, NAME)

    assert await rows.value("select id from @schema@.job") == first


async def test_what_is_removed_takes_its_waiting_tick_with_it(rows: Rows) -> None:
    """So that an entry that is added again under the name runs no tick twice."""
    await add_entry(rows)
    await fire(rows)

    assert await entries(rows).remove_recurring(rows.conn, NAME)

    assert await rows.value("select count(*) from @schema@.job") == 0
    assert not await entries(rows).remove_recurring(rows.conn, NAME)


async def test_a_changed_expression_owes_nothing_of_the_past(rows: Rows) -> None:
    """F49: first sight of what is new does not fire the past."""
    await add_entry(rows)
    await ago(rows, timedelta(hours=3))

    await add_entry(rows, "0,1,2,3,4 * * * *")

    entry = await due(rows)
    assert entry.now - entry.decided_until < timedelta(seconds=30)


async def test_a_changed_payload_does_not_forget_what_is_owed(rows: Rows) -> None:
    """A deploy that was long enough to miss a tick may well have changed what the job is given."""
    await add_entry(rows)
    await ago(rows, timedelta(minutes=10))

    await add_entry(rows, job=NewJob(kind=KIND, payload=b'{"order_id": 8}', home=QUEUE))

    entry = await due(rows)
    assert entry.now - entry.decided_until >= timedelta(minutes=10)


async def test_what_came_during_a_pause_is_not_owed(rows: Rows) -> None:
    """Who pauses wants no runs; with who and why as long as it lasts."""
    await add_entry(rows)
    assert await entries(rows).pause_recurring(rows.conn, NAME, by="ann", why="the ledger is closed")
    assert not await entries(rows).pause_recurring(rows.conn, NAME, by="bob", why="no")
    await ago(rows, timedelta(hours=3))
    paused = await stands(rows)
    assert (paused.state, paused.paused_by, paused.paused_why) == ("paused", "ann", "the ledger is closed")

    assert await entries(rows).resume_recurring(rows.conn, NAME)

    entry = await due(rows)
    assert entry.now - entry.decided_until < timedelta(seconds=30)
    assert (await stands(rows)).paused_by is None
    assert not await entries(rows).resume_recurring(rows.conn, NAME)


async def test_a_change_that_waits_for_a_tick_being_enqueued_withdraws_it(
    rows: Rows, other: Conn, blocked: Blocked
) -> None:
    """The trigger runs after the lock: it sees what was committed meanwhile."""
    await add_entry(rows)
    entry = await due(rows)

    transaction = rows.conn.transaction()
    await transaction.start()
    assert await entries(rows).fire_recurring(rows.conn, entry, ahead(entry))
    waiting = await blocked(other, entries(rows).pause_recurring(other, NAME, by="ann", why="now"))
    await transaction.commit()

    assert await waiting
    assert await rows.value("select count(*) from @schema@.job") == 0


# -- by SQL ------------------------------------------------------------------------------------------


async def test_an_entry_can_be_added_in_plain_sql(rows: Rows) -> None:
    """With a name, an expression and a kind; the rest has defaults, and `@daily` is known too."""
    await rows.run("insert into @schema@.recurring (name, expression, kind) values ('a', '@daily', 'tidy')")

    entry = await due(rows)

    assert (entry.zone, entry.catch_up, entry.catch_up_within_s, entry.overlap) == ("UTC", "last", 3600.0, "allow")
    assert decide(entry).next_tick.hour == 0


NONSENSE = {
    "name": "''",
    "expression": "'0 0 9 * * *'",
    "zone": "'Europe/Berlim'",
    "kind": "'no such kind'",
    "queue": "''",
    "payload": "'[]'",
    "priority": "10",
    "max_attempts": "0",
    "catch_up": "'some'",
    "catch_up_within": "'0 s'",
    "catch_up_cap": "5",
    "overlap": "'kill'",
    "paused_by": "'nobody'",
}


@pytest.mark.parametrize("column", NONSENSE)
async def test_the_table_refuses_nonsense(rows: Rows, column: str) -> None:
    """What can be said in SQL is refused there; the rest by the first worker that looks, which says so."""
    values = {"name": "'a'", "expression": "'* * * * *'", "kind": "'tidy'", column: NONSENSE[column]}

    with pytest.raises(asyncpg.PostgresError) as caught:
        await rows.run(f"insert into @schema@.recurring ({', '.join(values)}) values ({', '.join(values.values())})")

    assert isinstance(caught.value, asyncpg.CheckViolationError) or "time zone 'Europe/Berlim'" in str(caught.value)
