"""A lease and whoever thinks that it has lapsed, in a stated order: one wins, and only the owner's own writes wait.

As in test_races.py, the first actor holds its transaction open while the second comes: either the second is seen
waiting, or it is simply awaited, because it must not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobq.core.job import JobId, WorkerId
from jobq.core.states import State
from jobq.db.store import Reaped
from tests.db.observe import Blocked
from tests.db.rows import KIND, LEASE_S, QUEUE, SETTLES, Attempt, Rows, new_worker, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

AFTER = {
    "settle_done": State.DONE,
    "settle_retry": State.WAITING,
    "settle_released": State.WAITING,
    "settle_dead": State.DEAD,
}
REAPS = ["reap_worker", "reap_orphans"]


async def abandoned(rows: Rows, count: int = 1) -> list[Attempt]:
    """Jobs of one worker whose lease has lapsed, and theirs too."""
    worker_id = new_worker()
    attempts = [await rows.running(worker_id) for _ in range(count)]
    await rows.beat(worker_id, lease_s=-1.0)
    await rows.lapse(*attempts)
    return attempts


async def reap(rows: Rows, conn: Conn, how: str, *attempts: Attempt, limit: int = 100) -> list[JobId]:
    """Reap in either of the two ways."""
    reaped: list[Reaped]
    if how == "reap_worker":
        reaped = await rows.store.reap_worker(conn, attempts[0].worker_id, pause_s=0.0, limit=limit)
    else:
        reaped = await rows.store.reap_orphans(conn, attempts, pause_s=0.0)
    return sorted(job.id for job in reaped)


async def renew(rows: Rows, conn: Conn, *attempts: Attempt) -> set[JobId]:
    return await rows.store.renew_jobs(conn, attempts[0].worker_id, attempts, LEASE_S)


async def claim(rows: Rows, conn: Conn, worker_id: WorkerId) -> list[tuple[JobId, int, int]]:
    jobs = await rows.store.claim_jobs(conn, queue=QUEUE, kinds=[KIND], limit=10, worker_id=worker_id, lease_s=LEASE_S)
    return [(job.id, job.attempt, job.fence) for job in jobs]


async def is_held(rows: Rows, attempt: Attempt) -> bool:
    """Whether the job's own lease holds."""
    held: bool = await rows.value("select lease_until > now() from @schema@.job where id = $1", attempt.id)
    return held


# -- settle and reap ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", REAPS)
@pytest.mark.parametrize("statement", SETTLES)
async def test_a_reap_passes_over_a_job_that_is_being_settled(
    rows: Rows, other: Conn, statement: str, how: str
) -> None:
    """It does not wait; the outcome stays, and no crash is counted."""
    (attempt,) = await abandoned(rows)

    async with rows.conn.transaction():
        settled = await settle(rows, statement, attempt)
        before_commit = await reap(rows, other, how, attempt)
    after_commit = await reap(rows, other, how, attempt)

    assert (settled, before_commit, after_commit) == ({attempt.id}, [], [])
    assert await rows.state_of(attempt.id) is AFTER[statement]


@pytest.mark.parametrize("how", REAPS)
@pytest.mark.parametrize("statement", SETTLES)
async def test_a_settle_waits_for_the_reap_and_then_matches_nothing(
    rows: Rows, other: Conn, blocked: Blocked, statement: str, how: str
) -> None:
    """The crash stays counted: a release that comes too late gives no attempt back."""
    (attempt,) = await abandoned(rows)

    async with rows.conn.transaction():
        reaped = await reap(rows, rows.conn, how, attempt)
        late = await blocked(other, settle(rows, statement, attempt, conn=other))
    lost = await late

    job = await rows.job(attempt.id)
    assert (reaped, lost) == ([attempt.id], set())
    assert (job["worker_id"], job["attempt"], job["crashes"], job["fence"]) == (None, 1, 1, attempt.fence)


@pytest.mark.parametrize("how", REAPS)
async def test_a_reap_that_is_rolled_back_leaves_the_job_to_its_owner(
    rows: Rows, other: Conn, blocked: Blocked, how: str
) -> None:
    """The settle that waited for it is written."""
    (attempt,) = await abandoned(rows)

    reaping = rows.conn.transaction()
    await reaping.start()
    await reap(rows, rows.conn, how, attempt)
    late = await blocked(other, settle(rows, "settle_done", attempt, conn=other))
    await reaping.rollback()

    assert await late == {attempt.id}
    assert await rows.state_of(attempt.id) is State.DONE


# -- beat and reap -----------------------------------------------------------------------------------


async def test_a_beat_in_between_wins(rows: Rows, other: Conn) -> None:
    """A reap that meets a beat under way does not wait for it and takes nothing, nor does one that comes after it."""
    (attempt,) = await abandoned(rows)
    sighted = await rows.store.list_lapsed_workers(other)

    async with rows.conn.transaction():
        await rows.beat(attempt.worker_id)
        before_commit = await reap(rows, other, "reap_worker", attempt)
    after_commit = await reap(rows, other, "reap_worker", attempt)

    assert (sighted, before_commit, after_commit) == ([attempt.worker_id], [], [])
    assert await rows.state_of(attempt.id) is State.RUNNING


async def test_a_beat_waits_for_the_reap(rows: Rows, other: Conn, blocked: Blocked) -> None:
    """The worker lives again afterwards, and learns from its next renewal what it has lost."""
    reaped, locked = await abandoned(rows, 2)

    async with rows.conn.transaction():
        await reap(rows, rows.conn, "reap_worker", reaped, limit=1)
        beat = await blocked(other, rows.beat(reaped.worker_id, conn=other))
    await beat

    assert await rows.store.list_lapsed_workers(other) == []
    assert await renew(rows, other, reaped, locked) == {locked.id}
    assert await reap(rows, other, "reap_worker", locked) == []


async def test_a_worker_whose_beat_is_under_way_is_not_forgotten(rows: Rows, other: Conn, blocked: Blocked) -> None:
    """Whoever forgets it looks again at the lease."""
    worker_id = new_worker()
    await rows.beat(worker_id, lease_s=-1.0)

    async with rows.conn.transaction():
        await rows.beat(worker_id)
        forget = await blocked(other, rows.store.forget_worker(other, worker_id))

    assert await forget is False
    assert await rows.count("worker") == 1


# -- renewal and reap --------------------------------------------------------------------------------


async def test_a_renewal_in_between_saves_an_orphan(rows: Rows, other: Conn) -> None:
    """The lease is looked at again: while the renewal is under way, and after it."""
    (attempt,) = await abandoned(rows)
    sighted = await rows.store.list_orphans(other, 100)

    async with rows.conn.transaction():
        renewed = await renew(rows, rows.conn, attempt)
        before_commit = await reap(rows, other, "reap_orphans", attempt)
    after_commit = await reap(rows, other, "reap_orphans", attempt)

    assert [(one.id, one.fence) for one in sighted] == [(attempt.id, attempt.fence)]
    assert (renewed, before_commit, after_commit) == ({attempt.id}, [], [])
    assert await is_held(rows, attempt)


@pytest.mark.parametrize("how", REAPS)
async def test_a_renewal_does_not_wait_for_a_reap(rows: Rows, other: Conn, how: str) -> None:
    """Until the reap commits the job is still owned; the next renewal finds it lost and changes nothing."""
    (attempt,) = await abandoned(rows)

    async with rows.conn.transaction():
        await reap(rows, rows.conn, how, attempt)
        before_commit = await renew(rows, other, attempt)
    after_commit = await renew(rows, other, attempt)

    assert (before_commit, after_commit) == ({attempt.id}, set())
    assert (await rows.job(attempt.id))["lease_until"] is None


async def test_a_renewal_passes_over_a_locked_job_and_still_reports_it(rows: Rows, other: Conn) -> None:
    """The handler's own open transaction holds up no heartbeat: the others are renewed, and none is lost."""
    locked, *others = await abandoned(rows, 3)

    handler = rows.conn.transaction()
    await handler.start()
    await rows.run("select from @schema@.job where id = $1 for update", locked.id)
    renewed = await renew(rows, other, locked, *others)
    await handler.rollback()

    assert renewed == {locked.id, *(one.id for one in others)}
    assert [await is_held(rows, one) for one in (locked, *others)] == [False, True, True]


@pytest.mark.parametrize("how", REAPS)
async def test_a_reap_passes_over_a_job_that_its_handler_has_locked(rows: Rows, other: Conn, how: str) -> None:
    """The others of the page are taken; this one is, once the handler's transaction is gone."""
    locked, *others = await abandoned(rows, 3)

    handler = rows.conn.transaction()
    await handler.start()
    await rows.run("select from @schema@.job where id = $1 for update", locked.id)
    meanwhile = await reap(rows, other, how, locked, *others)
    await handler.rollback()

    assert meanwhile == [one.id for one in others]
    assert await reap(rows, other, how, locked) == [locked.id]


# -- reap and reap -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", REAPS)
async def test_two_reapers_count_one_crash(rows: Rows, other: Conn, how: str) -> None:
    """The second neither waits nor takes what the first has."""
    attempts = await abandoned(rows, 3)

    async with rows.conn.transaction():
        first = await reap(rows, rows.conn, how, *attempts)
        second = await reap(rows, other, how, *attempts)
    third = await reap(rows, other, how, *attempts)

    assert (first, second, third) == ([one.id for one in attempts], [], [])
    assert [(await rows.job(one.id))["crashes"] for one in attempts] == [1, 1, 1]


async def test_a_page_of_the_first_reaper_leaves_the_rest_to_the_second(rows: Rows, other: Conn) -> None:
    """Pages are transactions of their own, so two reapers may share the jobs of one worker."""
    attempts = await abandoned(rows, 3)

    first = await reap(rows, rows.conn, "reap_worker", *attempts, limit=2)
    second = await reap(rows, other, "reap_worker", *attempts, limit=2)

    assert (len(first), len(second)) == (2, 1)
    assert sorted(first + second) == [one.id for one in attempts]


# -- alone and reap ----------------------------------------------------------------------------------


async def test_to_run_alone_is_known_before_the_reap_or_not_at_all(rows: Rows, other: Conn, blocked: Blocked) -> None:
    """A suspect that is isolated in time dies alone; one whose reap came first does not start."""
    first, second = await abandoned(rows, 2)

    async with rows.conn.transaction():
        isolated = await rows.store.isolate_job(rows.conn, first.worker_id, first)
        meanwhile = await reap(rows, other, "reap_orphans", first)
    afterwards = await reap(rows, other, "reap_orphans", first)
    async with rows.conn.transaction():
        await reap(rows, rows.conn, "reap_orphans", second)
        late = await blocked(other, rows.store.isolate_job(other, second.worker_id, second))

    assert (isolated, meanwhile, afterwards, await late) == (True, [], [first.id], False)
    assert [(await rows.job(one.id))["lone_crashes"] for one in (first, second)] == [1, 0]


# -- claim and strays --------------------------------------------------------------------------------


async def test_strays_of_a_claim_are_released_once_it_has_committed(rows: Rows, other: Conn) -> None:
    """A claim that is still under way shows nothing, and is not waited for."""
    job_id, worker_id = await rows.waiting(), new_worker()

    async with rows.conn.transaction():
        await claim(rows, rows.conn, worker_id)
        before_commit = await rows.store.release_strays(other, worker_id, [])
    after_commit = await rows.store.release_strays(other, worker_id, [])

    assert (before_commit, after_commit) == ([], [job_id])
    assert await claim(rows, other, worker_id) == [(job_id, 1, 2)]


async def test_a_claim_passes_over_strays_that_are_being_released(rows: Rows, other: Conn) -> None:
    """They are ready when the release has committed, their attempt returned and their fence kept."""
    stray = await rows.running()

    async with rows.conn.transaction():
        await rows.store.release_strays(rows.conn, stray.worker_id, [])
        before_commit = await claim(rows, other, new_worker())
    after_commit = await claim(rows, other, new_worker())

    assert (before_commit, after_commit) == ([], [(stray.id, 1, 2)])


async def test_strays_that_are_being_reaped_are_not_waited_for(rows: Rows, other: Conn) -> None:
    """The reap's crash stays counted and the attempt is not returned on top of it."""
    (stray,) = await abandoned(rows)

    async with rows.conn.transaction():
        await reap(rows, rows.conn, "reap_worker", stray)
        before_commit = await rows.store.release_strays(other, stray.worker_id, [])
    after_commit = await rows.store.release_strays(other, stray.worker_id, [])

    job = await rows.job(stray.id)
    assert (before_commit, after_commit) == ([], [])
    assert (job["attempt"], job["crashes"]) == (1, 1)
