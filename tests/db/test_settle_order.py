"""What is written about many attempts at once goes to each by its id, in whatever order they come."""

from __future__ import annotations

import random

from jobq.db.store import Owned
from tests.db.rows import Attempt, Rows, new_worker


async def several(rows: Rows, count: int) -> list[Attempt]:
    """Let one worker run jobs with different fences, and return them shuffled."""
    worker_id = new_worker()
    attempts = [await rows.running(worker_id) for _ in range(count)]
    for attempt in attempts:
        await rows.run("update @schema@.job set fence = $2 where id = $1", attempt.id, attempt.id * 3)
    shuffled = [Attempt(attempt.id, attempt.id * 3, worker_id) for attempt in attempts]
    random.Random(7).shuffle(shuffled)
    return shuffled


async def test_each_job_gets_its_own_outcome(rows: Rows) -> None:
    """Run times, delays and errors belong to the job at the same place, not to the place that its id takes in order."""
    attempts = await several(rows, 30)
    done, retried = attempts[:15], attempts[15:]
    worker_id = attempts[0].worker_id

    settled = await rows.store.settle_done(
        rows.conn, worker_id, [Owned(one.id, one.fence) for one in done], [one.id * 7 for one in done]
    )
    failed = await rows.store.settle_retry(
        rows.conn,
        worker_id,
        [Owned(one.id, one.fence) for one in retried],
        [one.id * 1000.0 for one in retried],
        [f'{{"type": "E{one.id}"}}' for one in retried],
    )

    assert (settled, failed) == ({one.id for one in done}, {one.id for one in retried})
    assert await rows.value("select bool_and(run_ms = id * 7) from @schema@.done")
    assert await rows.value("select bool_and(errors -> 0 ->> 'type' = 'E' || id) from @schema@.job")
    assert await rows.value(
        "select bool_and(abs(extract(epoch from run_at - clock_timestamp()) - id * 1000) < 60) from @schema@.job"
    )


async def test_a_lost_attempt_among_the_others_matches_nothing(rows: Rows) -> None:
    """Its neighbours do."""
    attempts = await several(rows, 9)
    lost = attempts[4]
    proofs = [Owned(one.id, one.fence - (one is lost)) for one in attempts]

    matched = await rows.store.renew_jobs(rows.conn, lost.worker_id, proofs, 60.0)

    assert matched == {one.id for one in attempts} - {lost.id}


async def test_of_two_attempts_of_one_job_the_one_that_owns_it_is_written(rows: Rows) -> None:
    """The older one may be in the same batch, in front or behind."""
    for older_first in (True, False):
        (attempt,) = await several(rows, 1)
        proofs = [Owned(attempt.id, attempt.fence - 1), Owned(attempt.id, attempt.fence)]
        run_ms = [1, 2]
        if not older_first:
            proofs.reverse()
            run_ms.reverse()

        assert await rows.store.settle_done(rows.conn, attempt.worker_id, proofs, run_ms) == {attempt.id}
        assert await rows.value("select run_ms from @schema@.done where id = $1", attempt.id) == 2


async def test_nothing_to_write_is_nothing(rows: Rows) -> None:
    """No statement could be made of it."""
    assert await rows.store.settle_done(rows.conn, new_worker(), [], []) == set()
