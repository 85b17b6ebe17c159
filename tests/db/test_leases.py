"""Leases, and what is taken back when they lapse: each statement by itself."""

from __future__ import annotations

import pytest

from jobq.core.job import ClaimedJob, JobId
from jobq.core.states import State
from jobq.db.store import KindCount, Owned, Reaped
from tests.db.rows import KIND, LEASE_S, QUEUE, Attempt, Rows, new_worker, settle


async def reap_worker(rows: Rows, attempt: Attempt, limit: int = 100) -> list[Reaped]:
    return await rows.store.reap_worker(rows.conn, attempt.worker_id, pause_s=0.0, limit=limit)


async def reap_orphans(rows: Rows, *attempts: Owned) -> list[Reaped]:
    return await rows.store.reap_orphans(rows.conn, attempts, pause_s=0.0)


async def claim_one(rows: Rows) -> ClaimedJob:
    (claimed,) = await rows.store.claim_jobs(
        rows.conn, queue=QUEUE, kinds=[KIND], limit=10, worker_id=new_worker(), lease_s=LEASE_S
    )
    return claimed


# -- the worker's lease ------------------------------------------------------------------------------


async def test_a_beat_renews_the_lease_and_nothing_else(rows: Rows) -> None:
    """The row is made by the first one and keeps its start; the lease counts from the database's now."""
    worker_id = new_worker()
    await rows.beat(worker_id, lease_s=-1.0)
    before = await rows.row("select * from @schema@.worker")

    await rows.beat(worker_id, lease_s=30.0)

    after = await rows.row("select *, lease_until - clock_timestamp() as rest from @schema@.worker")
    assert 29 < after["rest"].total_seconds() <= 30
    assert [before[name] == after[name] for name in before.keys()] == [name != "lease_until" for name in before.keys()]  # noqa: SIM118
    assert (after["queues"], after["kinds"], after["pid"]) == ([QUEUE], [KIND], 7)


async def test_a_lapsed_worker_is_listed_until_it_beats(rows: Rows) -> None:
    """Only those whose lease has lapsed."""
    alive, silent = new_worker(), new_worker()
    await rows.beat(alive)
    await rows.beat(silent, lease_s=-1.0)

    lapsed = await rows.store.list_lapsed_workers(rows.conn)
    await rows.beat(silent)

    assert lapsed == [silent]
    assert await rows.store.list_lapsed_workers(rows.conn) == []


async def test_a_worker_is_forgotten_when_it_is_lapsed_and_holds_nothing(rows: Rows) -> None:
    """While one of the two does not hold, its row stays; it is made again by a beat."""
    attempt = await rows.running()
    worker_id = attempt.worker_id
    answers = []

    await rows.beat(worker_id, lease_s=-1.0)
    answers.append(await rows.store.forget_worker(rows.conn, worker_id))
    await settle(rows, "settle_done", attempt)
    await rows.beat(worker_id)
    answers.append(await rows.store.forget_worker(rows.conn, worker_id))
    await rows.beat(worker_id, lease_s=-1.0)
    answers += [await rows.store.forget_worker(rows.conn, worker_id) for _ in range(2)]
    await rows.beat(worker_id)

    assert answers == [False, False, True, False]
    assert await rows.count("worker") == 1


async def test_a_goodbye_drops_only_one_s_own_row(rows: Rows) -> None:
    """Whatever the lease says."""
    staying, leaving = new_worker(), new_worker()
    await rows.beat(staying)
    await rows.beat(leaving)

    await rows.store.say_goodbye(rows.conn, leaving)

    assert await rows.value("select array(select worker_id from @schema@.worker)") == [staying]


async def test_a_goodbye_keeps_the_row_of_a_worker_that_holds_something(rows: Rows) -> None:
    """A claim that it never heard of: its lease has to lapse, so that a reaper finds the job."""
    attempt = await rows.running()
    await rows.beat(attempt.worker_id)

    await rows.store.say_goodbye(rows.conn, attempt.worker_id)

    assert await rows.count("worker") == 1


# -- the job's lease ---------------------------------------------------------------------------------


async def test_a_renewal_counts_from_now(rows: Rows) -> None:
    """Of the jobs that are named, and no others."""
    worker_id = new_worker()
    renewed, left = await rows.running(worker_id), await rows.running(worker_id)
    await rows.lapse(renewed, left)

    kept = await rows.store.renew_jobs(rows.conn, worker_id, [renewed], 90.0)

    rest = "select extract(epoch from lease_until - clock_timestamp())::float8 from @schema@.job where id = $1"
    assert kept == {renewed.id}
    assert 89 < await rows.value(rest, renewed.id) <= 90
    assert await rows.value(rest, left.id) < 0


async def test_an_orphan_is_listed_when_its_lease_has_lapsed_or_its_worker_is_gone(rows: Rows) -> None:
    """Running jobs only, with the fence of the attempt, and no more than asked for."""
    held = await rows.running()
    lapsed, _ = orphans = [await rows.running(), await rows.running(new_worker())]
    await rows.waiting()
    await rows.lapse(lapsed)

    listed = await rows.store.list_orphans(rows.conn, 100)

    assert sorted(listed, key=lambda one: one.id) == [Owned(one.id, one.fence) for one in orphans]
    assert len(await rows.store.list_orphans(rows.conn, 1)) == 1
    assert await rows.state_of(held.id) is State.RUNNING


async def test_an_orphan_is_reaped_only_if_it_is_the_one_that_was_seen(rows: Rows) -> None:
    """Another attempt, a lease that holds again, or a worker that beats after all, is left alone."""
    seen, again, renewed = [await rows.running() for _ in range(3)]
    deserted, back = [await rows.running(new_worker()) for _ in range(2)]
    await settle(rows, "settle_released", again)
    later = await rows.reclaimed(again.id)
    await rows.lapse(seen, later)
    await rows.beat(back.worker_id)

    reaped = await reap_orphans(rows, renewed, again, seen, deserted, back)

    assert sorted(reaped, key=lambda one: one.id) == [Reaped(one.id, KIND, 1) for one in (seen, deserted)]
    assert [await rows.state_of(one.id) for one in (again, renewed, back)] == [State.RUNNING] * 3


# -- reaping -----------------------------------------------------------------------------------------


async def test_a_worker_is_reaped_only_while_its_lease_is_lapsed(rows: Rows) -> None:
    """Not before, not without a row, and never the jobs of another."""
    attempt, other = await rows.running(), await rows.running()
    await rows.beat(other.worker_id, lease_s=-1.0)
    answers = [await reap_worker(rows, attempt)]
    await rows.beat(attempt.worker_id)
    answers.append(await reap_worker(rows, attempt))
    await rows.beat(attempt.worker_id, lease_s=-1.0)

    answers.append(await reap_worker(rows, attempt))

    assert answers == [[], [], [Reaped(attempt.id, KIND, 1)]]
    assert await rows.state_of(other.id) is State.RUNNING


async def test_jobs_are_reaped_in_pages(rows: Rows) -> None:
    """Each takes as many as the limit says, until nothing is left."""
    worker_id = new_worker()
    attempts = [await rows.running(worker_id) for _ in range(5)]
    await rows.beat(worker_id, lease_s=-1.0)

    pages = [await reap_worker(rows, attempts[0], limit=2) for _ in range(4)]

    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert sorted(job.id for page in pages for job in page) == [one.id for one in attempts]


@pytest.mark.parametrize("how", ["reap_worker", "reap_orphans"])
async def test_a_reap_counts_a_crash_and_judges_nothing(rows: Rows, how: str) -> None:
    """F19: the attempt stays used, the loss is recorded as an error, and the job waits a moment, also beyond limits."""
    attempt = await rows.running(max_attempts=1)
    await rows.beat(attempt.worker_id, lease_s=-1.0)
    await rows.lapse(attempt)
    earliest = await rows.value("select clock_timestamp()")

    if how == "reap_worker":
        await rows.store.reap_worker(rows.conn, attempt.worker_id, pause_s=2.0, limit=10)
    else:
        await rows.store.reap_orphans(rows.conn, [attempt], pause_s=2.0)

    latest = await rows.value("select clock_timestamp() + interval '2 s'")
    job = await rows.job(attempt.id)
    error = await rows.row(
        "select e ->> 'type' as type, e ->> 'attempt' as attempt, e ->> 'worker_id' as worker_id"
        " from @schema@.job, jsonb_array_elements(errors) e"
    )
    assert (job["worker_id"], job["lease_until"], job["attempt"], job["crashes"]) == (None, None, 1, 1)
    assert job["lone_crashes"] == 0
    assert earliest <= job["run_at"] <= latest
    assert job["first_failed_at"] >= earliest
    assert tuple(error) == ("WorkerLost", "1", str(attempt.worker_id))


async def test_only_a_crash_of_the_isolated_attempt_is_a_lone_one(rows: Rows) -> None:
    """What was alone once and was released runs among others in its next attempt; the claim tells the counts."""
    attempt = await rows.running()
    await rows.store.isolate_job(rows.conn, attempt.worker_id, attempt)
    await settle(rows, "settle_released", attempt)

    beside = await rows.reclaimed(attempt.id)
    await rows.lapse(beside)
    await reap_orphans(rows, beside)
    alone = await rows.reclaimed(attempt.id)
    await rows.store.isolate_job(rows.conn, alone.worker_id, alone)
    await rows.lapse(alone)
    await reap_orphans(rows, alone)

    claimed = await claim_one(rows)
    assert (claimed.crashes, claimed.lone_crashes) == (2, 1)


async def test_a_redriven_job_starts_without_crashes(rows: Rows) -> None:
    """A person has looked at it: no suspicion is left."""
    attempt = await rows.running()
    await rows.store.isolate_job(rows.conn, attempt.worker_id, attempt)
    await rows.lapse(attempt)
    await reap_orphans(rows, attempt)
    await settle(rows, "settle_dead", await rows.reclaimed(attempt.id))
    kept = (await rows.dead_letter(attempt.id))["crashes"]

    await rows.store.redrive_jobs(rows.conn, [attempt.id])

    claimed = await claim_one(rows)
    assert kept == 1
    assert (claimed.attempt, claimed.crashes, claimed.lone_crashes) == (1, 0, 0)


# -- strays ------------------------------------------------------------------------------------------


async def test_strays_are_what_is_not_in_hand(rows: Rows) -> None:
    """Of this worker only; their attempt is returned, no crash is counted, and they are ready at once."""
    worker_id = new_worker()
    stray, in_hand = await rows.running(worker_id), await rows.running(worker_id)
    foreign = await rows.running()

    released = await rows.store.release_strays(rows.conn, worker_id, [in_hand.id])

    job = await rows.job(stray.id)
    assert released == [stray.id]
    assert (job["attempt"], job["crashes"], job["fence"], job["errors"]) == (0, 0, 1, None)
    assert await rows.value("select run_at <= clock_timestamp() from @schema@.job where id = $1", stray.id)
    assert [await rows.state_of(one.id) for one in (in_hand, foreign)] == [State.RUNNING] * 2


# -- counts by kind ----------------------------------------------------------------------------------


async def test_counts_of_kinds_are_appended(rows: Rows) -> None:
    """One row a kind and call; durations as two arrays, by bucket."""
    worker_id = new_worker()
    counts = [KindCount("mail", "a", 3, 1, 0, {12: 1, 2: 3}), KindCount("mail", "b", 0, 0, 1, {})]

    await rows.store.record_kind_stats(rows.conn, worker_id, counts)
    await rows.store.record_kind_stats(rows.conn, worker_id, counts[:1])

    stored = await rows.value(
        "select array(select row(queue, kind, done, retried, dead, buckets, counts)::text"
        " from @schema@.kind_stat order by at, kind)"
    )
    assert stored == [
        '(mail,a,3,1,0,"{2,12}","{3,1}")',
        "(mail,b,0,0,1,{},{})",
        '(mail,a,3,1,0,"{2,12}","{3,1}")',
    ]


async def test_counts_older_than_a_day_are_forgotten(rows: Rows) -> None:
    """F93: the oldest first, in pages."""
    for hours in (30, 25, 23, 0):
        await rows.store.record_kind_stats(rows.conn, new_worker(), [KindCount("mail", f"h{hours}", 1, 0, 0, {})])
        await rows.run(
            "update @schema@.kind_stat set at = now() - $2::int * interval '1 hour' where kind = $1",
            f"h{hours}",
            hours,
        )
    kinds = "select array(select kind from @schema@.kind_stat order by at)"

    left = []
    purged = []
    for _ in range(3):
        purged.append(await rows.store.purge_kind_stats(rows.conn, 1))
        left.append(await rows.value(kinds))

    assert purged == [1, 1, 0]
    assert left == [["h25", "h23", "h0"], ["h23", "h0"], ["h23", "h0"]]


async def test_no_ids_are_nobody_s(rows: Rows) -> None:
    """Empty arrays are harmless."""
    await rows.running()
    before = await rows.contents()

    assert await rows.store.renew_jobs(rows.conn, new_worker(), [], LEASE_S) == set()
    assert await reap_orphans(rows) == []
    assert await rows.store.release_strays(rows.conn, new_worker(), [JobId(1)]) == []
    assert await rows.contents() == before
