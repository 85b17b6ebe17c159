"""Poison pills end as dead letters, and only they."""

from __future__ import annotations

import asyncio
from typing import Any

from jobq import Queue
from jobq.core.job import JobId, WorkerId
from jobq.core.states import State
from jobq.telemetry.events import JobDied, LeaseLost
from tests.db.rows import Attempt, Rows
from tests.worker.conftest import Working
from tests.worker.hall import Hall, suspect
from tests.worker.observe import Events, Jobs, eventually

RENEWED: dict[str, Any] = {
    "worker_lease_s": 0.9,
    "beat_s": 0.05,
    "beat_deadline_s": 0.8,
    "job_lease_s": 2.0,
    "statement_deadline_s": 1.0,
}
"""A worker that soon hears what it has lost."""


async def crash(rows: Rows, jobs: Jobs, *job_ids: JobId) -> None:
    """Let other workers take the jobs away, as if the one that runs them were dead."""
    for job_id in job_ids:
        now = await jobs.get(job_id)
        assert now.fence is not None
        assert now.worker_id is not None
        attempt = Attempt(job_id, now.fence, WorkerId(now.worker_id))
        async with rows.conn.transaction():
            await rows.lapse(attempt)
            assert await rows.store.reap_orphans(rows.conn, [attempt], pause_s=0.0)


async def test_a_killer_becomes_a_dead_letter(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F18: it says how often it has killed its worker, and the handler is not called again."""
    job_id = await suspect(rows, crashes=3, lone=1)

    async with working():
        died = await seen(JobDied)

    letter = await rows.dead_letter(job_id)
    assert hall.log == []
    assert (died.id, died.reason, died.attempt) == (job_id, "killed its worker", 3)
    assert died.error_message.startswith("killed its worker 3 times")
    assert (letter["crashes"], letter["attempt"], letter["error_type"]) == (3, 3, "WorkerLost")
    assert letter["error_message"] == died.error_message


async def test_who_was_merely_beside_is_innocent(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """However often its workers died: it runs alone, and is done."""
    job_id = await suspect(rows, crashes=8)
    hall.may_go["suspect"].set()

    async with working():
        await jobs.become(job_id, State.DONE)

    assert hall.log == [("in", "suspect"), ("out", "suspect")]
    assert not seen.has(JobDied)


async def test_a_suspect_that_dies_alone_is_condemned_by_the_next_claim(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """The whole way: alone, reaped, claimed again, dead."""
    job_id = await suspect(rows)

    async with working(**RENEWED):
        await hall.has("suspect")
        isolated = await rows.row("select alone_fence = fence as yes, crashes from @schema@.job where id = $1", job_id)
        await crash(rows, jobs, job_id)
        await jobs.become(job_id, State.DEAD)

    assert tuple(isolated) == (True, 2)
    assert [(event.id, event.attempt) for event in seen.of(LeaseLost)] == [(job_id, 3)]
    assert hall.log == [("in", "suspect"), ("out", "suspect")]
    assert (await rows.dead_letter(job_id))["error_message"].startswith("killed its worker 3 times")


async def test_the_last_crash_among_others_condemns_nobody(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """With two crashes each, taken from a worker in which both waited or ran, both are tried again."""
    ids = [await suspect(rows, crashes=1) for _ in range(2)]

    async with working(default_slots=2, **RENEWED):
        await jobs.until({State.RUNNING: 2})
        await crash(rows, jobs, *ids)
        hall.may_go["suspect"].set()
        await jobs.all_become(State.DONE, 2)

    assert not seen.has(JobDied)
    assert await rows.value("select array_agg(crashes) from @schema@.done") == [2, 2]


async def test_a_kind_may_allow_a_single_crash(
    queue: Queue, rows: Rows, seen: Events, jobs: Jobs, working: Working
) -> None:
    """With `max_crashes=1` every run is a run alone, so the first crash is the last."""

    @queue.task("bomb", max_crashes=1)
    async def bomb() -> None:
        await asyncio.Event().wait()

    job = await queue.enqueue(bomb.bind())
    async with working(**RENEWED):
        await eventually(lambda: rows.value("select alone_fence is not null from @schema@.job where id = $1", job.id))
        await crash(rows, jobs, job.id)
        died = await seen(JobDied)

    assert died.error_message.startswith("killed its worker 1 time")
