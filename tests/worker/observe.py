"""What a test of a worker waits for: events, rows, backends. Every wait has a deadline and says what it waited for."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import pytest

from jobq.core.states import State
from jobq.telemetry.events import Event
from jobq.worker.supervisor import ExitCode, Worker

if TYPE_CHECKING:
    from asyncpg import Connection, Record

T = TypeVar("T")
E = TypeVar("E", bound=Event)

DEADLINE_S = 10.0

LOOK_EVERY_S = 0.005
"""How often the database is asked for a row; it cannot call back."""


class Events:
    """What the workers of a test say, as it comes. `await seen(JobDied)` waits for the first, `nth` for a later one."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self._more = asyncio.Event()

    def emit(self, event: Event) -> None:
        """Take an event from a worker."""
        self.all.append(event)
        self._more.set()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind so far."""
        return [event for event in self.all if isinstance(event, kind)]

    def has(self, *kinds: type[Event]) -> bool:
        """Say whether there was an event of one of these kinds."""
        return any(isinstance(event, kinds) for event in self.all)

    async def __call__(self, kind: type[E], *, nth: int = 1) -> E:
        """Wait for the *nth* event of *kind*."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while len(found := self.of(kind)) < nth:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            pytest.fail(f"no {kind.__name__} number {nth} within {DEADLINE_S:g} s; seen: {self.all}")
        return found[nth - 1]


async def eventually(look: Callable[[], Awaitable[T]], is_there: Callable[[T], object] = bool) -> T:
    """Look until what is found *is_there*, and return it."""
    found = await look()
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not is_there(found):
                await asyncio.sleep(LOOK_EVERY_S)
                found = await look()
    except TimeoutError:
        pytest.fail(f"not there within {DEADLINE_S:g} s; last seen: {found!r}")
    return found


async def until_true(look: Callable[[], T]) -> T:
    """Look at something of this process until it is true, and return it."""

    async def looked() -> T:
        return look()

    return await eventually(looked)


async def within(seconds: float, wanted: Awaitable[T]) -> T:
    """Return what *wanted* returns, or fail after *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            return await wanted
    except TimeoutError:
        pytest.fail(f"it took more than {seconds:g} s")


class JobNow(NamedTuple):
    """Where a job is and what stands there."""

    state: State
    attempt: int
    fence: int | None
    worker_id: UUID | None
    due_in_s: float
    errors: list[dict[str, Any]]

    @property
    def records(self) -> list[tuple[str, int]]:
        """How the attempts ended that are on record: type and attempt."""
        return [(error["type"], error["attempt"]) for error in self.errors]


class Jobs:
    """The rows of the test's schema."""

    def __init__(self, conn: Connection[Record], sql: Callable[[str], str]) -> None:
        self._conn = conn
        self._sql = sql

    def text(self, text: str) -> str:
        """Return a statement for this test's schema, to be run by somebody else."""
        return self._sql(text)

    async def run(self, text: str, *values: object) -> Any:
        """Run one statement on this test's schema and return the first value, if any."""
        return await self._conn.fetchval(self._sql(text), *values)

    async def script(self, text: str) -> None:
        """Run some statements on this test's schema."""
        await self._conn.execute(self._sql(text))

    async def get(self, job_id: int) -> JobNow:
        """Say where a job is; it must be in exactly one place."""
        rows = await self._conn.fetch(
            self._sql(
                """
                select case when j.worker_id is null then 'waiting' else 'running' end, j.attempt, j.fence, j.worker_id,
                    extract(epoch from j.run_at - clock_timestamp())::float8, coalesce(j.errors, '[]')::text
                from @schema@.job j where j.id = $1
                union all
                select 'done', d.attempt, null, d.worker_id, 0, coalesce(d.errors, '[]')::text
                from @schema@.done d where d.id = $1
                union all
                select 'dead', d.attempt, d.fence, d.worker_id, 0, d.errors::text
                from @schema@.dead_letter d where d.id = $1
                """
            ),
            job_id,
        )
        assert len(rows) == 1, f"job {job_id} is in {len(rows)} places: {rows}"
        state, attempt, fence, worker_id, due_in_s, errors = rows[0]
        return JobNow(State(state), attempt, fence, worker_id, due_in_s, json.loads(errors))

    async def become(self, job_id: int, state: State) -> JobNow:
        """Wait until a job is in *state*."""
        return await eventually(lambda: self.get(job_id), lambda now: now.state is state)

    async def waits_longer(self, job_id: int, seconds: float) -> JobNow:
        """Wait until a job is due in more than *seconds*: until it has been put off."""
        return await eventually(lambda: self.get(job_id), lambda now: now.due_in_s > seconds)

    async def count(self) -> Counter[State]:
        """Say how many jobs are in each state."""
        rows = await self._conn.fetch(
            self._sql(
                """
                select case when j.worker_id is null then 'waiting' else 'running' end, count(*)
                from @schema@.job j group by 1
                union all
                select 'done', count(*) from @schema@.done
                union all
                select 'dead', count(*) from @schema@.dead_letter
                """
            )
        )
        return Counter({State(state): count for state, count in rows if count})

    async def until(self, counts: dict[State, int]) -> None:
        """Wait until so many jobs are in each state, and none elsewhere."""
        await eventually(self.count, lambda found: found == counts)

    async def all_become(self, state: State, count: int) -> None:
        """Wait until there are *count* jobs and all of them are in *state*."""
        await self.until({state: count})

    async def steal(self, job_id: int, *, into: str = "default") -> None:
        """Take a running job from its worker, as the reaper will: it waits again, in queue *into*."""
        taken = await self.run(
            """
            update @schema@.job set worker_id = null, lease_until = null, run_at = clock_timestamp(), queue = $2
            where id = $1 and worker_id is not null
            returning true
            """,
            job_id,
            into,
        )
        assert taken

    async def asleep(self) -> list[str]:
        """Return the queues on which a claim loop sleeps."""
        rows = await self._conn.fetch(self._sql("select queue from @schema@.sleeper order by queue"))
        return [row[0] for row in rows]

    async def backends(self, where: str = "true") -> list[str]:
        """Return the application names of jobq's connections to this database, but for the test's own."""
        rows = await self._conn.fetch(
            "select application_name from pg_stat_activity where application_name like 'jobq %'"
            f" and datname = current_database() and {where} order by 1"
        )
        return [row[0] for row in rows]

    async def terminate(self, name: str = "jobq %") -> int:
        """Kill jobq's backends whose application name is like *name*. Returns how many there were."""
        count: int = await self._conn.fetchval(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where application_name like $1 and datname = current_database()",
            name,
        )
        return count


class Running:
    """One worker that runs in the test's loop."""

    def __init__(self, worker: Worker, task: asyncio.Task[ExitCode]) -> None:
        self.worker = worker
        self.task = task

    async def ended(self, deadline_s: float = DEADLINE_S) -> ExitCode:
        """Wait for the worker's end. Returns its exit code, or raises what it raised."""
        await asyncio.wait([self.task], timeout=deadline_s)
        assert self.task.done(), f"the worker has not ended within {deadline_s:g} s"
        return self.task.result()

    async def stop(self, deadline_s: float = DEADLINE_S) -> ExitCode:
        """Ask for a stop, as SIGTERM does, and wait for the end."""
        self.worker.stop()
        return await self.ended(deadline_s)
