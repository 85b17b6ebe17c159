"""Finished jobs are kept in a ring of eight slots, and only the slot that is due is emptied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from jobq.core.states import State
from jobq.db.migrate import set_history
from jobq.errors import ConflictError, DatabaseError
from tests.db.rows import Rows, new_worker, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

COLUMNS = ["id", "enqueued_at", "claimed_at", "worker_id", "attempt", "crashes", "priority", "queue", "kind", "payload"]
"""What history takes over from the job unchanged."""

SLOT_S = 1000
"""Long enough that the slot does not turn during a test, but in one of a thousand seconds."""


async def keep_slots(rows: Rows) -> int:
    """Set slots of `SLOT_S`, wait out the end of one if it is near, and return the number of the current one."""
    assert await set_history(rows.conn, rows.store.schema, 5 * SLOT_S) == SLOT_S
    left = f"{SLOT_S} - extract(epoch from clock_timestamp()) % {SLOT_S}"
    await rows.value(f"select pg_sleep(case when {left} < 5 then {left} else 0 end)")
    current: int = await rows.value(f"select floor(extract(epoch from clock_timestamp()) / {SLOT_S})::bigint % 8")
    return current


async def finished(rows: Rows, slot: int, *, slots_ago: float, count: int = 1) -> None:
    """Write history that finished so long ago into *slot*, rightly or not."""
    await rows.run(
        f"""
        insert into @schema@.done (
            id, enqueued_at, finished_at, run_ms, attempt, crashes, slot, priority, queue, kind, outcome, payload
        )
        select
            n, now(), clock_timestamp() - interval '{slots_ago * SLOT_S} s', 1, 1, 0, $1, 5, 'mail', 'k', 'done',
            jsonb_build_object('text', repeat('x', 1000))
        from generate_series(1, $2::int) n
        """,
        slot % 8,
        count,
    )


async def filled(rows: Rows) -> list[int]:
    """The slots that hold rows."""
    slots: list[int] = await rows.value("select array(select distinct slot from @schema@.done order by slot)")
    return slots


# -- writing -----------------------------------------------------------------------------------------


async def test_a_finished_job_is_written_into_the_current_slot(rows: Rows) -> None:
    """With how long it ran and when it ended, by the settle that deletes the live row."""
    current = await keep_slots(rows)
    attempt = await rows.running(payload='{"order_id": 8}', priority=2)
    job = await rows.job(attempt.id)
    earliest = await rows.value("select clock_timestamp()")

    await rows.store.settle_done(rows.conn, attempt.worker_id, [attempt], [1234])

    done = await rows.row("select * from @schema@.done")
    assert [done[name] for name in COLUMNS] == [job[name] for name in COLUMNS]
    assert (done["slot"], done["run_ms"], done["outcome"]) == (current, 1234, "done")
    assert earliest <= done["finished_at"] <= await rows.value("select clock_timestamp()")
    assert await rows.count("job") == 0


async def test_a_finished_job_says_why_it_ran_before(rows: Rows) -> None:
    """N4: what its row had on record goes into the history; null for one that is done at its first run."""
    worker_id = new_worker()
    again, at_once = [await rows.running(worker_id) for _ in range(2)]
    await settle(rows, "settle_retry", again)
    again = await rows.reclaimed(again.id, worker_id)
    (said,) = json.loads((await rows.job(again.id))["errors"])

    await settle(rows, "settle_done", again, at_once)

    errors = "select errors from @schema@.done where id = $1"
    assert await rows.value(errors, at_once.id) is None
    assert json.loads(await rows.value(errors, again.id)) == [said]
    assert (said["type"], said["attempt"], said["worker_id"]) == ("TimeoutError", 1, str(worker_id))


async def test_run_times_go_by_position(rows: Rows) -> None:
    """In a batch each job gets its own, whatever the order of the ids."""
    worker_id = (await rows.running()).worker_id
    attempts = [await rows.running(worker_id) for _ in range(3)][::-1]

    await rows.store.settle_done(rows.conn, worker_id, attempts, [10, 20, 30])

    written = await rows.value("select array_agg(run_ms order by id desc) from @schema@.done")
    assert written == [10, 20, 30]


async def test_without_history_nothing_is_written(rows: Rows) -> None:
    """0 seconds: the job is finished all the same, and there is nothing to empty."""
    slot_s = await set_history(rows.conn, rows.store.schema, 0)
    attempt = await rows.running()

    settled = await settle(rows, "settle_done", attempt)

    assert (slot_s, settled) == (0, {attempt.id})
    assert await rows.state_of(attempt.id) is State.ABSENT
    assert await rows.store.empty_oldest_slot(rows.conn) == 0


async def test_five_slots_keep_what_is_asked_for(rows: Rows) -> None:
    """A slot lasts a fifth, rounded up, so that nothing is kept for less."""
    expected = {86_400: 17_280, 604_800: 120_960, 6: 2, 5: 1, 1: 1, 0.5: 1}

    answered = {keep_s: await set_history(rows.conn, rows.store.schema, keep_s) for keep_s in expected}

    assert answered == expected
    assert await rows.value("select slot_s from @schema@.history") == 1


async def test_a_day_is_kept_unless_stated(rows: Rows) -> None:
    """F75: the migration sets five slots of 17,280 seconds."""
    assert await rows.value("select slot_s from @schema@.history") == 17_280


async def test_an_impossible_history_is_refused(rows: Rows) -> None:
    """Negative, or slots of more than a year: the setting stays."""
    for keep_s in (-5, 5 * 31_536_001):
        with pytest.raises(DatabaseError, match="history_slot_range"):
            await set_history(rows.conn, rows.store.schema, keep_s)

    assert await rows.value("select slot_s from @schema@.history") == 17_280


# -- the ring ----------------------------------------------------------------------------------------


async def test_only_the_slot_after_next_is_emptied(rows: Rows) -> None:
    """F75: never the current nor the next, into which a settle may be writing, nor another; its bytes are reported."""
    current = await keep_slots(rows)
    for slot in range(8):
        await finished(rows, slot, slots_ago=7, count=50)
    size = await rows.value(f"select pg_relation_size($name$@schema@.done_{(current + 2) % 8}$name$)")

    emptied = await rows.store.empty_oldest_slot(rows.conn)
    again = await rows.store.empty_oldest_slot(rows.conn)

    assert emptied == size > 0
    assert again == 0
    assert await filled(rows) == sorted(set(range(8)) - {(current + 2) % 8})


@pytest.mark.parametrize(("slots_ago", "is_left"), [(5.01, False), (4.9, True), (0.0, True)])
async def test_a_slot_whose_newest_row_is_young_is_left(rows: Rows, slots_ago: float, is_left: bool) -> None:
    """Five slots are kept whole, also when slot length or clock were changed; the newest row decides, on any page."""
    due = await keep_slots(rows) + 2
    await finished(rows, due, slots_ago=100, count=50)
    await finished(rows, due, slots_ago=slots_ago)

    emptied = await rows.store.empty_oldest_slot(rows.conn)

    assert (emptied is None) is is_left
    assert bool(await filled(rows)) is is_left


async def test_a_reader_of_the_slot_is_waited_for_100_ms(rows: Rows, other: Conn) -> None:
    """Then it is a conflict, to be tried another time: who comes after the reader is not held up behind it."""
    due = await keep_slots(rows) + 2
    await finished(rows, due, slots_ago=7)
    asked = await rows.value("select clock_timestamp()")

    async with other.transaction():
        await Rows(other, rows.store).count("done")
        with pytest.raises(ConflictError, match="LockNotAvailable"):
            await rows.store.empty_oldest_slot(rows.conn)

    waited = await rows.value("select clock_timestamp()") - asked
    assert 0.1 <= waited.total_seconds() < 2
    assert await filled(rows) == [due % 8]
    assert await rows.value("show lock_timeout") == "0"


async def test_a_settle_goes_on_while_a_slot_is_emptied(rows: Rows, other: Conn) -> None:
    """The lock is on the slot that is due, and the settle writes into another."""
    due = await keep_slots(rows) + 2
    await finished(rows, due, slots_ago=7)
    attempt = await rows.running()

    async with other.transaction():
        emptied = await rows.store.empty_oldest_slot(other)
        settled = await settle(rows, "settle_done", attempt)

    assert emptied
    assert settled == {attempt.id}
    assert await rows.state_of(attempt.id) is State.DONE
