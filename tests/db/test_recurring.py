"""Recurring entries in the database: one statement moves an entry on and adds its jobs, for whoever comes first."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobq import DatabaseError, NewJob
from tests.db.entries import NAME, SOON, add_entry, ago, ahead, due, entries, entry_row, fire, look, stands
from tests.db.rows import KIND, QUEUE, Rows, new_worker

if TYPE_CHECKING:
    from tests.conftest import Conn


async def test_a_tick_is_there_before_it_is_due(rows: Rows) -> None:
    """With everything that the entry says, at its tick, bearing its name; nothing of the past is run."""
    assert await add_entry(rows, job=NewJob(kind=KIND, payload=b'{"a": 1}', home=QUEUE, priority=2, max_attempts=4))

    job_id = await fire(rows)

    job = await rows.row("select * from @schema@.job where id = $1", job_id)
    entry = await stands(rows)
    assert (job["kind"], job["queue"], job["priority"], job["max_attempts"]) == (KIND, QUEUE, 2, 4)
    assert json.loads(job["payload"]) == {"a": 1}
    assert timedelta(0) < job["run_at"] - entry.now <= SOON
    headers = json.loads(job["headers"])
    assert (headers["recurring"], datetime.fromisoformat(headers["tick"])) == (NAME, job["run_at"])
    assert (entry.state, entry.last_tick, entry.last_job_id) == ("well", job["run_at"], job_id)
    assert entry.next_tick == job["run_at"] + SOON
    assert await entries(rows).list_due_recurring(rows.conn, 10) == []


async def test_f51_of_eight_that_have_read_the_same_one_enqueues(rows: Rows, connect: Any) -> None:
    """F51: whoever comes later finds the entry moved on, or being moved on, and adds nothing."""
    await add_entry(rows)
    entry, others = await due(rows), [await connect() for _ in range(8)]

    fired = await asyncio.gather(*(entries(rows).fire_recurring(other, entry, ahead(entry)) for other in others))

    assert sorted(map(len, (one for one in fired if one is not None))) == [1]
    assert await rows.value("select count(*) from @schema@.job") == 1


async def test_f53_what_the_server_refuses_leaves_the_tick_owed(rows: Rows) -> None:
    """F53: the entry is moved on and the job is there, or neither; the fault is noted, and goes when it is over."""
    await add_entry(rows)
    await rows.run("alter table @schema@.job add constraint refuse check (kind <> 'send_receipt')")
    entry = await due(rows)

    with pytest.raises(DatabaseError, match="refuse"):
        await entries(rows).fire_recurring(rows.conn, entry, ahead(entry))
    owed = await due(rows)
    assert (owed.revision, owed.decided_until) == (entry.revision, entry.decided_until)
    assert await entries(rows).fault_recurring(rows.conn, entry, "refused", pause_s=0.0)

    assert ((await stands(rows)).state, (await stands(rows)).fault) == ("faulty", "refused")
    await rows.run("alter table @schema@.job drop constraint refuse")
    assert await fire(rows)
    assert ((await stands(rows)).state, (await stands(rows)).fault) == ("well", None)


async def test_nobody_waits_for_an_entry_that_somebody_changes(rows: Rows, other: Conn) -> None:
    """A transaction that holds an entry holds up that entry only, and no worker."""
    await add_entry(rows)
    entry = await due(rows)
    await other.execute("set lock_timeout = '1ms'")

    async with rows.conn.transaction():
        await rows.run("update @schema@.recurring set overlap = 'skip'")
        assert await entries(rows).fire_recurring(other, entry, ahead(entry)) is None
        assert not await entries(rows).fault_recurring(other, entry, "x", pause_s=1.0)
        await entries(rows).confirm_recurring(other, [NAME])
        assert not await entries(rows).declare_recurring(other, entry_row(), is_code=True)

    assert await entries(rows).fire_recurring(other, entry, ahead(entry)) is None
    assert await rows.value("select count(*) from @schema@.job") == 0


# -- overlap -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_who_must_not_overlap_waits_for_the_job_before(rows: Rows, overlap: str) -> None:
    """Unfinished is what waits, runs or is tried again; then the tick gives way, or waits for the end."""
    await add_entry(rows, overlap=overlap)
    await ago(rows, timedelta(minutes=2))
    (first,) = await look(rows)
    attempt = await rows.reclaimed(first)
    await ago(rows, timedelta(minutes=2))

    assert await look(rows) == []

    entry = await stands(rows)
    assert (entry.state, entry.skipped > 0) == (("well", True) if overlap == "skip" else ("held", False))
    await rows.store.settle_done(rows.conn, attempt.worker_id, [attempt], [1])
    await ago(rows, timedelta(seconds=5))
    if overlap == "queue":
        assert len(await look(rows)) == 1


async def test_a_run_by_hand_is_enqueued_now(rows: Rows) -> None:
    """Beside the tick that lies ahead, which a change still withdraws; also while it is paused."""
    await add_entry(rows)
    of_tick = await fire(rows)

    job_id = await entries(rows).run_recurring(rows.conn, NAME)

    job = await rows.row("select * from @schema@.job where id = $1", job_id)
    assert job["run_at"] == job["enqueued_at"]
    assert json.loads(job["headers"]) == {"recurring": NAME}
    await entries(rows).pause_recurring(rows.conn, NAME, by="ann", why="x")
    assert await rows.value("select array(select id from @schema@.job)") == [job_id]
    assert await rows.value("select count(*) from @schema@.job where id = $1", of_tick) == 0
    assert await entries(rows).run_recurring(rows.conn, NAME)
    assert await entries(rows).run_recurring(rows.conn, "nobody") is None


async def test_a_run_by_hand_does_not_overlap_either(rows: Rows) -> None:
    """Whoever said that runs must not meet meant those too; and a tick gives way to it."""
    await add_entry(rows, overlap="skip")

    assert await entries(rows).run_recurring(rows.conn, NAME)

    assert await entries(rows).run_recurring(rows.conn, NAME) is None
    assert (await due(rows)).is_busy


# -- how it stands -----------------------------------------------------------------------------------


async def test_a_tick_that_nobody_enqueued_is_overdue(rows: Rows) -> None:
    """It should have run, and no worker was there: whoever looks sees it without one."""
    await add_entry(rows)
    await fire(rows)
    await ago(rows, timedelta(minutes=10))

    entry = await stands(rows)

    assert entry.state == "overdue"
    assert entry.should_have_run_at == entry.next_tick


async def test_a_tick_whose_job_nobody_starts_is_late(rows: Rows) -> None:
    """Enqueued is not run: its queue may have no worker."""
    await add_entry(rows)
    await fire(rows)
    await rows.run("update @schema@.job set run_at = now() - interval '6 min'")

    entry = await stands(rows)

    assert entry.state == "late"
    assert entry.should_have_run_at is not None
    assert entry.now - entry.should_have_run_at >= timedelta(minutes=6)


async def test_a_tick_that_came_too_late_is_missed_until_the_next_runs(rows: Rows) -> None:
    """The alarm goes when the entry has run again; the count stays."""
    noon = (await rows.value("select now()") + timedelta(hours=12)).hour
    await add_entry(rows, f"0 {noon} * * *", within=60)
    await ago(rows, timedelta(days=2))

    assert await look(rows) == []
    entry = await stands(rows)

    assert (entry.state, entry.missed) == ("missed", 2)
    assert entry.should_have_run_at is not None
    await rows.run("update @schema@.recurring set last_tick = now()")
    assert ((await stands(rows)).state, (await stands(rows)).missed) == ("well", 2)


async def test_what_no_code_declares_any_more_is_marked_and_kept(rows: Rows) -> None:
    """F49: a rolling deploy removes nothing; what live workers have not named for a quarter of an hour is marked."""
    await add_entry(rows)
    await rows.run("update @schema@.recurring set declared_at = now() - interval '16 min'")
    assert not (await stands(rows)).is_forsaken
    await rows.beat(new_worker())
    assert (await stands(rows)).is_forsaken

    await entries(rows).confirm_recurring(rows.conn, [NAME])

    assert not (await stands(rows)).is_forsaken
