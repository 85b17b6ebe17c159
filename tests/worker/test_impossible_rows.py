"""Rows that no enqueue makes, put in by SQL as far as the table lets them: each may hold up nothing but itself."""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec
import pytest

from jobq import Job, JobId, Queue
from jobq.core.states import State
from jobq.telemetry.events import JobDied, JobReaped, WorkerReaped
from jobq.worker import reaper
from jobq.worker.supervisor import ExitCode
from tests.db.rows import Rows, new_worker
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs, until_true

OFTEN: dict[str, Any] = {
    "worker_lease_s": 0.9,
    "beat_s": 0.05,
    "beat_deadline_s": 0.8,
    "statement_deadline_s": 2.0,
    "job_lease_s": 4.0,
}
"""The reaper looks every 50 ms."""

WORK = {"kind": "work", "queue": "default", "payload": "{}"}

DEEP = "repeat('[', 5000) || repeat(']', 5000)"
DEEP_FIELD = f"payload = ('{{\"deep\": ' || {DEEP} || '}}')::jsonb"


def can_read(depth: int) -> bool:
    """Whether this Python reads lists that are nested so deeply: newer ones do."""
    try:
        msgspec.json.decode(b"[" * depth + b"]" * depth)
    except RecursionError:
        return False
    return True


@pytest.fixture
def starts(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[JobId]:
    """The jobs that the handlers of `work` and `fail` were called for; what is reaped is ready at once."""
    starts: list[JobId] = []
    monkeypatch.setattr(reaper, "CRASH_PAUSE_SHARE", 0.0)

    @queue.task("work")
    async def work(job: Job) -> None:
        starts.append(job.id)

    @queue.task("fail", max_attempts=2, backoff=AT_ONCE)
    async def fail(job: Job) -> None:
        starts.append(job.id)
        raise ValueError("as always")

    return starts


async def spoil(rows: Rows, job_id: JobId, assignments: str) -> bool:
    """Change a row by SQL into one that no enqueue makes. Returns whether the table lets it."""
    try:
        await rows.run(f"update @schema@.job set {assignments} where id = $1", job_id)
    except asyncpg.IntegrityConstraintViolationError:
        return False
    return True


async def the_worker_works(rows: Rows, seen: Events, jobs: Jobs) -> None:
    """Jobs that come now run, and what a silent worker held is taken back and run: claims, settles, reaper go round."""
    silent = new_worker()
    healthy = [await rows.waiting(**WORK) for _ in range(5)]
    held = await rows.running(silent, **WORK)
    await rows.beat(silent, lease_s=-1.0)

    for job_id in (*healthy, held.id):
        await jobs.become(job_id, State.DONE)

    await until_true(lambda: silent in {event.silent_worker_id for event in seen.of(WorkerReaped)})
    assert held.id in reaped(seen)


def reaped(seen: Events) -> set[int]:
    """Return the jobs that were taken back."""
    return {event.id for event in seen.of(JobReaped)}


# -- what the table refuses --------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["run_at", "enqueued_at", "queue", "kind", "payload", "attempt", "fence", "crashes"])
async def test_the_table_refuses_null_where_the_worker_reads_a_value(rows: Rows, column: str) -> None:
    """F20: a row with such a hole cannot be put in at all."""
    job_id = await rows.waiting(**WORK)

    assert not await spoil(rows, job_id, f"{column} = null")


@pytest.mark.parametrize("priority", [-1, 10])
async def test_the_table_refuses_a_priority_that_no_claim_looks_at(rows: Rows, priority: int) -> None:
    """F20: it would wait for ever, because a claim asks the lanes 0 to 9."""
    job_id = await rows.waiting(**WORK)

    assert not await spoil(rows, job_id, f"priority = {priority}")


@pytest.mark.parametrize(
    "odd",
    [
        "attempt = 2147483647",  # one more does not fit
        "fence = 2147483647",
        "crashes = 2147483647",
        "lone_crashes = 2147483647",
        "redrives = 2147483647",
        "run_at = '-infinity'",
        "run_at = '4000-01-01 BC'",  # no year of Python's
        "run_at = '20000-01-01'",
        "enqueued_at = '4000-01-01 BC'",
        "enqueued_at = 'infinity'",
        """errors = '{"no": "array"}'""",
        "errors = 'null'",
        """errors = '"text"'""",
    ],
)
async def test_the_table_refuses_what_a_claim_or_a_reaper_would_stumble_over(rows: Rows, odd: str) -> None:
    """F20: their statements take many jobs at once, so a row that one of them fails at would stop all the others."""
    job_id = await rows.waiting(**WORK)

    assert not await spoil(rows, job_id, odd)


# -- what it lets pass, and what becomes of it -------------------------------------------------------

DEAD_BY = {
    "attempt = 7, max_attempts = 3": "attempts used up",
    "max_attempts = 0": "attempts used up",
    "max_attempts = -5": "attempts used up",
    "crashes = 9, lone_crashes = 1": "killed its worker",
    "payload = 'null'": "payload does not fit the handler",
    "payload = '[]'": "payload does not fit the handler",
    "payload = '\"text\"'": "payload does not fit the handler",
    "payload = '1e1000'": "payload does not fit the handler",
    f"payload = ({DEEP})::jsonb": "payload does not fit the handler",
    **({} if can_read(5000) else {DEEP_FIELD: "payload does not fit the handler"}),
}

WAITING = ("kind = 'nobody_knows_it'", "kind = ''", "queue = ''")

RUNS_ALL_THE_SAME = (
    "attempt = -3",
    "crashes = -1, lone_crashes = -1",
    "fence = -2147483648",
    "headers = '3'",
    "claimed_at = '-infinity', first_failed_at = '4000-01-01 BC'",
    "lease_until = now() - interval '1 hour'",  # lapsed, of a job that nobody holds
    "lease_until = '-infinity'",
    "idempotency_key = 'of no row of the keys'",
    *([DEEP_FIELD] if can_read(5000) else []),
)


async def test_what_cannot_run_is_a_dead_letter_or_waits_and_everything_else_runs(
    rows: Rows, seen: Events, jobs: Jobs, working: Working, starts: list[JobId]
) -> None:
    """F20: a worker starts on a table full of impossible rows, calls no handler for what is dead, and works."""
    spoiled = {odd: await rows.waiting(**WORK) for odd in (*DEAD_BY, *WAITING, *RUNS_ALL_THE_SAME)}
    for odd, job_id in spoiled.items():
        assert await spoil(rows, job_id, odd), odd

    async with working(**OFTEN) as running:
        await the_worker_works(rows, seen, jobs)
        for odd in RUNS_ALL_THE_SAME:
            await jobs.become(spoiled[odd], State.DONE)
        await seen(JobDied, nth=len(DEAD_BY))
        assert await running.stop() is ExitCode.DRAINED

    told = {event.id: event.reason for event in seen.of(JobDied)}
    assert {odd: told.get(spoiled[odd]) for odd in DEAD_BY} == DEAD_BY
    for odd, reason in DEAD_BY.items():
        assert (await rows.dead_letter(spoiled[odd]))["reason"] == reason
        assert spoiled[odd] not in starts, odd
    for odd in WAITING:
        now = await jobs.get(spoiled[odd])
        assert (now.state, now.attempt, now.fence) == (State.WAITING, 0, 0), odd


HELD = (*DEAD_BY, *WAITING, *RUNS_ALL_THE_SAME, "lease_until = null", "lease_until = 'infinity'")


@pytest.mark.parametrize("by", ["worker", "job"])
async def test_what_cannot_run_is_taken_back_from_a_silent_worker_all_the_same(
    rows: Rows, seen: Events, jobs: Jobs, working: Working, starts: list[JobId], by: str
) -> None:
    """F20: the reaper judges nothing: it takes back impossible rows like others, by the worker's lease or the job's."""
    silent = new_worker()
    of_the_job = [odd for odd in HELD if "lease_until" not in odd]
    spoiled = {odd: await rows.running(silent, **WORK) for odd in (HELD if by == "worker" else of_the_job)}
    for odd, attempt in spoiled.items():
        assert await spoil(rows, attempt.id, odd), odd
    if by == "worker":
        await rows.beat(silent, lease_s=-1.0)
    else:
        await rows.lapse(*spoiled.values())

    async with working(**OFTEN) as running:
        await the_worker_works(rows, seen, jobs)
        for odd, attempt in spoiled.items():
            if odd in WAITING:
                now = await jobs.become(attempt.id, State.WAITING)
            else:
                now = await jobs.become(attempt.id, State.DEAD if odd in DEAD_BY else State.DONE)
            assert now.worker_id != silent, odd
        await until_true(lambda: reaped(seen) >= {attempt.id for attempt in spoiled.values()})
        assert await running.stop() is ExitCode.DRAINED
