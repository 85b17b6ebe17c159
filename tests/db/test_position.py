"""A claim starts at the marks of its lanes, and whatever ready job it may have passed is found by looking behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobq.core.job import PRIORITIES, ClaimedJob, JobId
from jobq.core.position import BEGINNING, FRONT, Mark, Position
from jobq.core.states import State
from tests.db.rows import KIND, LEASE_S, QUEUE, Attempt, Rows, new_worker, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

MOMENT = timedelta(microseconds=1)
LIMIT = 100


def marks(run_at: datetime, job_id: int = 0, *, lanes: Collection[int] = PRIORITIES) -> list[Mark]:
    """The same mark in each of these *lanes*, and the front in the others."""
    return [Mark(run_at, JobId(job_id)) if priority in lanes else BEGINNING for priority in PRIORITIES]


async def ago(rows: Rows, **back: float) -> datetime:
    """A time before the database's."""
    now: datetime = await rows.value("select now()")
    return now - timedelta(**back)


async def ready(rows: Rows, run_at: datetime, **stated: object) -> JobId:
    """Enqueue a job that could have been claimed since *run_at*."""
    job_id = await rows.waiting(**stated)
    await rows.run("update @schema@.job set run_at = $2 where id = $1", job_id, run_at)
    return job_id


async def claimed_jobs(rows: Rows, start: list[Mark], conn: Conn | None = None) -> list[ClaimedJob]:
    wanted: dict[str, Any] = {
        "queue": QUEUE,
        "kinds": [KIND],
        "limit": LIMIT,
        "worker_id": new_worker(),
        "lease_s": LEASE_S,
    }
    return await rows.store.claim_jobs(conn or rows.conn, **wanted, marks=start)


async def claim(rows: Rows, start: list[Mark], conn: Conn | None = None) -> list[JobId]:
    return [job.id for job in await claimed_jobs(rows, start, conn)]


async def look(
    rows: Rows,
    before: list[Mark],
    conn: Conn | None = None,
    *,
    since: list[Mark] = FRONT,
    queue: str = QUEUE,
    kind: str = KIND,
) -> datetime | None:
    return await rows.store.find_passed(conn or rows.conn, queue=queue, kinds=[kind], since=since, marks=before)


# -- where a claim starts ----------------------------------------------------------------------------


async def test_a_claim_passes_over_nothing_at_or_after_its_mark(rows: Rows) -> None:
    """The mark is a place in the order of `run_at` and, among jobs of one `run_at`, of ids."""
    then = await ago(rows, minutes=1)
    later = await ready(rows, then + MOMENT)
    before, at, after = [await ready(rows, then) for _ in range(3)]
    earlier = await ready(rows, then - MOMENT)

    claimed = await claim(rows, marks(then, at))

    assert claimed == [at, after, later]
    assert {await rows.state_of(before), await rows.state_of(earlier)} == {State.WAITING}


async def test_each_lane_has_its_own_mark(rows: Rows) -> None:
    """What one lane has passed says nothing of another."""
    then = await ago(rows, minutes=1)
    by_lane = [await ready(rows, then, priority=priority) for priority in PRIORITIES]

    claimed = await claim(rows, marks(then + MOMENT, lanes=[0, 4, 9]))

    assert claimed == [by_lane[priority] for priority in (1, 2, 3, 5, 6, 7, 8)]


async def test_the_front_passes_over_nothing(rows: Rows) -> None:
    """It lies before the earliest `run_at` that a job may have, in every lane."""
    earliest = datetime(2000, 1, 1, tzinfo=UTC)
    by_lane = [await ready(rows, earliest, priority=priority) for priority in PRIORITIES]

    passed = await look(rows, FRONT)
    claimed = await claim(rows, FRONT)

    assert passed is not None
    assert claimed == by_lane


@pytest.mark.parametrize("ahead", [timedelta(seconds=-0.5), timedelta(hours=1)])
async def test_a_claim_goes_a_second_back_whatever_its_marks(rows: Rows, ahead: timedelta) -> None:
    """A job that became visible up to a second after its `run_at` needs no look behind."""
    async with rows.conn.transaction():  # in which the database's time stands still
        now = await rows.value("select now()")
        young = await ready(rows, now - timedelta(milliseconds=999))
        old = await ready(rows, now - timedelta(milliseconds=1001))

        claimed = await claim(rows, marks(now + ahead, 10**15))

    assert claimed == [young]
    assert await rows.state_of(old) is State.WAITING


# -- looking behind ----------------------------------------------------------------------------------


async def test_a_job_behind_the_marks_is_not_claimed_but_found(rows: Rows) -> None:
    """By its `run_at`, and among jobs of one `run_at` by its id."""
    then = await ago(rows, minutes=1)
    first, second = await ready(rows, then), await ready(rows, then)

    answers = [
        (await claim(rows, start), await look(rows, start) is None)
        for start in (marks(then + MOMENT), marks(then, second + 1))
    ]
    taken = await claim(rows, marks(then, second))

    assert answers == [([], True)] * 2
    assert (taken, await look(rows, marks(then, second))) == ([second], None)
    assert await rows.state_of(first) is State.WAITING


async def test_a_look_that_finds_nothing_returns_the_databases_time(rows: Rows) -> None:
    """At the mark nothing has been passed yet, nor in an empty queue."""
    then = await ago(rows, minutes=1)
    job_id = await ready(rows, then)

    async with rows.conn.transaction():
        now = await rows.value("select now()")
        answers = [await look(rows, marks(then, job_id)), await look(rows, marks(now), queue="empty")]

    assert answers == [now, now]


async def test_a_look_may_go_a_part_of_the_way_back(rows: Rows) -> None:
    """From a time on, in each lane: what lies there is found, what is older is left to another look."""
    then = await ago(rows, minutes=1)
    await ready(rows, then, priority=4)
    start = marks(then + MOMENT)

    answers = [
        await look(rows, start, since=marks(since, lanes=lanes)) is None
        for since, lanes in (
            (then, PRIORITIES),
            (then + MOMENT, PRIORITIES),
            (then + MOMENT, {4}),
            (then + MOMENT, {5}),
        )
    ]

    assert answers == [True, False, False, True]


@pytest.mark.parametrize("priority", [0, 4, 9])
async def test_a_look_asks_each_lane_up_to_its_own_mark(rows: Rows, priority: int) -> None:
    """A job was passed if it lies before the mark of its own lane, whatever the marks of the others."""
    then = await ago(rows, minutes=1)
    await ready(rows, then, priority=priority)

    in_its_lane = await look(rows, marks(then + MOMENT, lanes=[priority]))
    in_the_others = await look(rows, marks(then + MOMENT, lanes=set(PRIORITIES) - {priority}))

    assert in_its_lane is None
    assert in_the_others is not None


async def test_a_look_is_for_one_queue_and_the_kinds_that_are_claimed(rows: Rows) -> None:
    """What this loop would not have claimed was not passed by it."""
    then = await ago(rows, minutes=1)
    await ready(rows, then, queue="reports")
    await ready(rows, then, kind="print_receipt")
    start = marks(then + MOMENT)

    mine = await look(rows, start)
    others = [await look(rows, start, queue="reports"), await look(rows, start, kind="print_receipt")]

    assert mine is not None
    assert others == [None, None]


async def test_what_is_scheduled_or_running_was_not_passed(rows: Rows) -> None:
    """Only a ready job can have been, however far ahead the marks are."""
    await rows.scheduled()
    attempt = await rows.running()
    await rows.run("update @schema@.job set run_at = now() - interval '1 minute' where id = $1", attempt.id)

    assert await look(rows, marks(await ago(rows, hours=-2))) is not None


# -- beside others -----------------------------------------------------------------------------------


async def test_a_job_that_another_is_taking_was_not_passed(rows: Rows, other: Conn) -> None:
    """The look does not wait for its lock; if it is given up, the next look finds the job."""
    then = await ago(rows, minutes=1)
    job_id = await ready(rows, then)
    start = marks(then + MOMENT)

    first = rows.conn.transaction()
    await first.start()
    taken = await claim(rows, FRONT)
    meanwhile = await look(rows, start, other)
    await first.rollback()

    assert taken == [job_id]
    assert meanwhile is not None
    assert await look(rows, start, other) is None


async def test_a_look_goes_on_behind_a_locked_job(rows: Rows, other: Conn) -> None:
    """One lock in front hides nothing that nobody holds."""
    then = await ago(rows, minutes=1)
    locked, free = await ready(rows, then), await ready(rows, then)

    async with rows.conn.transaction():
        await rows.run("select from @schema@.job where id = $1 for update", locked)
        found = await look(rows, marks(then + MOMENT), other)

    assert found is None
    assert await rows.state_of(free) is State.WAITING


async def test_a_look_leaves_no_lock_behind(rows: Rows, other: Conn) -> None:
    """Whoever comes after it can claim what it found."""
    then = await ago(rows, minutes=1)
    job_id = await ready(rows, then)

    found = await look(rows, marks(then + MOMENT))

    assert found is None
    assert await claim(rows, FRONT, other) == [job_id]


async def test_a_job_that_is_committed_late_is_found_by_the_look(rows: Rows, other: Conn) -> None:
    """The claim went by before it could be seen: it is passed, then found, then claimed from the front."""
    position = Position()
    await ready(rows, await ago(rows, seconds=5))

    async with other.transaction():
        writer = Rows(other, rows.store)
        late = await ready(writer, await ago(rows, seconds=10))
        await claim_from(rows, position)
    passed = await claim_from(rows, position)
    position.after_look(await look(rows, position.marks), since=FRONT, took_s=0.0, now=0.0)
    found = await claim_from(rows, position)

    assert (passed, found) == ([], [late])


async def claim_from(rows: Rows, position: Position) -> list[JobId]:
    """Claim as a loop does, and move its position on."""
    claimed = await claimed_jobs(rows, position.before_claim())
    position.after_claim(claimed, limit=LIMIT, took_s=0.0)
    return [job.id for job in claimed]


# -- nothing is put behind on purpose ----------------------------------------------------------------


async def redriven(rows: Rows, attempt: Attempt) -> None:
    await settle(rows, "settle_dead", attempt)
    await rows.store.redrive_jobs(rows.conn, [attempt.id])


WAYS_BACK: dict[str, Callable[[Rows, Attempt], Awaitable[object]]] = {
    "settle_retry": lambda rows, attempt: settle(rows, "settle_retry", attempt),
    "settle_released": lambda rows, attempt: settle(rows, "settle_released", attempt),
    "reap_worker": lambda rows, attempt: rows.store.reap_worker(rows.conn, attempt.worker_id, pause_s=0.0, limit=1),
    "reap_orphans": lambda rows, attempt: rows.store.reap_orphans(rows.conn, [attempt], pause_s=0.0),
    "release_strays": lambda rows, attempt: rows.store.release_strays(rows.conn, attempt.worker_id, []),
    "redrive_jobs": redriven,
}


@pytest.mark.parametrize("way", WAYS_BACK)
async def test_what_waits_again_is_behind_no_mark_of_the_past(rows: Rows, way: str) -> None:
    """Its `run_at` is the database's clock or later, however long ago the job was due; so it is for new ones."""
    attempt = await rows.running()
    await rows.run("update @schema@.job set run_at = now() - interval '1 hour'")
    await rows.beat(attempt.worker_id, -1.0)
    await rows.lapse(attempt)
    earliest = await rows.value("select clock_timestamp()")

    await WAYS_BACK[way](rows, attempt)

    assert await rows.count(where="worker_id is null and run_at <= clock_timestamp()") == 1
    assert await look(rows, marks(earliest)) is not None
