"""How many starts a job has: exactly as many as allowed, and none is lost on a run that never was."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NoReturn

from jobq import Job, Queue
from jobq.core.states import State
from jobq.telemetry.events import JobDied
from tests.db.rows import Rows
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs


async def test_max_attempts_counts_all_starts(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """F41: N allowed attempts are N starts, and the last failure is the death, by the limit of handler or job."""
    starts: Counter[int] = Counter()

    async def fail(job: Job) -> NoReturn:
        starts[job.id] += 1
        raise OSError("no")

    for limit in range(1, 6):
        queue.task(f"limit-{limit}", max_attempts=limit, backoff=AT_ONCE)(fail)
    of_handler = [(limit, await queue.enqueue(f"limit-{limit}")) for limit in range(1, 6)]
    of_job = [(limit, await queue.enqueue("limit-3", max_attempts=limit)) for limit in range(1, 6)]
    async with working(poll_s=0.01):
        await jobs.all_become(State.DEAD, 10)
        await seen(JobDied, nth=10)

    for limit, job in of_handler + of_job:
        now = await jobs.get(job.id)
        assert (starts[job.id], now.attempt, len(now.errors)) == (limit, limit, limit)
    assert {event.reason for event in seen.of(JobDied)} == {"attempts used up"}


async def test_a_job_without_attempts_left_stops_nobody(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F40: a row at its limit, which no run of ours leaves, is a dead letter uncalled, and the ten behind it run."""
    ran: list[int] = []

    @queue.task("count", max_attempts=3)
    async def count(n: int) -> None:
        ran.append(n)

    odd = await queue.enqueue(count.bind(-1), priority=0)
    await jobs.run("update @schema@.job set attempt = 3")
    await queue.enqueue_many([count.bind(n) for n in range(10)])
    async with working(default_slots=2):
        await jobs.until({State.DONE: 10, State.DEAD: 1})

    assert sorted(ran) == list(range(10))
    assert (await jobs.get(odd.id)).attempt == 3
    assert seen.of(JobDied)[0].reason == "attempts used up"


async def test_an_only_attempt_that_is_lost_is_the_death(
    queue: Queue, rows: Rows, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F19: nobody knows whether its handler had begun, so it is not called; the letter tells of the lost worker."""
    ran: list[int] = []

    @queue.task("once", max_attempts=1)
    async def once(job: Job) -> None:
        ran.append(job.id)

    lost = await rows.running(kind="once", queue="default", payload="{}")
    await rows.lapse(lost)
    await rows.store.reap_orphans(rows.conn, [lost], pause_s=0.0)
    async with working():
        now = await jobs.become(lost.id, State.DEAD)
        died = await seen(JobDied)

    assert ran == []
    assert (now.attempt, now.errors[0]["type"]) == (1, "WorkerLost")
    assert died.reason == "attempts used up"


async def test_a_run_that_was_handed_back_costs_nothing(queue: Queue, jobs: Jobs, working: Working) -> None:
    """F42: a job that is released by ten workers in turn and then fails has used one attempt."""
    started = asyncio.Event()

    @queue.task("slow", max_attempts=1)
    async def slow(job: Job) -> NoReturn:
        started.set()
        if job.fence <= 10:
            await asyncio.Event().wait()
        raise OSError("no")

    job = await queue.enqueue(slow.bind())
    for _ in range(10):
        async with working(grace_s=0) as running:
            await started.wait()
            started.clear()
            await running.stop()
        now = await jobs.get(job.id)
        assert (now.state, now.attempt, now.records[-1]) == (State.WAITING, 0, ("Drained", 1))
    async with working():
        now = await jobs.become(job.id, State.DEAD)

    assert (now.attempt, now.fence, now.records) == (1, 11, [("Drained", 1)] * 10 + [("OSError", 1)])
