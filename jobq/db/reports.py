"""What people and tools ask: reads only, never a lock, never a decision about a running attempt.

Optional filters are joined from the fragments below, one a field; values always go as parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from jobq.core.job import JobId, WorkerId
from jobq.core.states import State
from jobq.db.connect import driver_errors
from jobq.db.statements import load_statements

if TYPE_CHECKING:
    from asyncpg import Record

    from jobq.db.connect import AnyConnection


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant; every stated field must match. `older_than_s` counts from their death."""

    ids: tuple[JobId, ...] | None = None
    kind: str | None = None
    queue: str | None = None
    fingerprint: str | None = None
    older_than_s: float | None = None
    younger_than_s: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stated, so that every dead letter is meant."""
        return all(getattr(self, field) is None for field in self.__struct_fields__)


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter as it is listed. Times are the database's."""

    id: JobId
    kind: str
    queue: str
    reason: str
    error_type: str
    error_message: str
    fingerprint: str
    attempt: int
    crashes: int
    redrives: int
    first_failed_at: datetime
    died_at: datetime


class DeadLetterDetail(DeadLetter, frozen=True):
    """A dead letter whole. *payload*, *errors* and *headers* are JSON text; *errors* is oldest first."""

    priority: int
    max_attempts: int | None
    fence: int
    enqueued_at: datetime
    run_at: datetime
    claimed_at: datetime | None
    idempotency_key: str | None
    payload: str
    errors: str
    headers: str | None


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant; every stated field must match. *before* is the id at which the page before ended."""

    kind: str | None = None
    queue: str | None = None
    before: JobId | None = None


class ListedJob(msgspec.Struct, frozen=True):
    """A job as it is listed, in any state but dead. Times are the database's.

    *state* is `ready`, `scheduled`, `running` or `done`; `run_at` is not kept of done jobs. *worker* is `host:pid`
    where that is still known.
    """

    id: JobId
    kind: str
    queue: str
    state: str
    priority: int
    attempt: int
    enqueued_at: datetime
    run_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    worker_id: WorkerId | None
    worker: str | None


class JobDetail(ListedJob, frozen=True):
    """A job whole. *payload*, *errors* and *headers* are JSON text; *errors* is oldest first.

    *errors* says why the job has run more than once, None if it has not; of the fields before *payload*, those that may
    be None are not kept of done jobs, *run_ms* not of others.
    """

    max_attempts: int | None
    crashes: int
    redrives: int | None
    fence: int | None
    lease_until: datetime | None
    first_failed_at: datetime | None
    run_ms: int | None
    idempotency_key: str | None
    payload: str
    errors: str | None
    headers: str | None


class Explanation(msgspec.Struct, frozen=True):
    """Why a job is not running, as the SQL function `explain` says. *numbers* is JSON text: those of the sentence."""

    reason: str
    sentence: str
    numbers: str


_JOB_FRAGMENTS = {"kind": "j.kind = {}", "queue": "j.queue = {}", "before": "j.id < {}"}

# In the words of the index of waiting jobs, so that it may be used to find a few beside millions of others.
_WAITING_FRAGMENTS = {
    "kind": "j.worker_id is null and j.kind = {}",
    "queue": "j.worker_id is null and j.queue = {}",
    "before": "j.id < {}",
}

_DEAD_FRAGMENTS = {
    "ids": "d.id = any({})",
    "kind": "d.kind = {}",
    "queue": "d.queue = {}",
    "fingerprint": "d.fingerprint = {}",
    "older_than_s": "d.died_at <= now() - {}::float8 * interval '1 second'",
    "younger_than_s": "d.died_at > now() - {}::float8 * interval '1 second'",
}


class Reports:
    """The questions that can be asked of one schema."""

    def __init__(self, schema: str) -> None:
        self._sql = load_statements(schema)

    async def list_dead(self, conn: AnyConnection, wanted: DeadFilter, *, limit: int) -> list[DeadLetter]:
        """Return the newest dead letters first, at most *limit*."""
        rows = await self._filtered("list_dead", conn, _DEAD_FRAGMENTS, wanted, [limit])
        return [DeadLetter(*row) for row in rows]

    async def count_dead(self, conn: AnyConnection, wanted: DeadFilter) -> tuple[int, JobId]:
        """Return how many dead letters match, and the highest id among them (0 if none)."""
        rows = await self._filtered("count_dead", conn, _DEAD_FRAGMENTS, wanted, [])
        return rows[0][0], rows[0][1]

    async def page_dead_ids(
        self, conn: AnyConnection, wanted: DeadFilter, *, after: JobId, upto: JobId, limit: int
    ) -> list[JobId]:
        """Return up to *limit* ids of matching dead letters with after < id <= upto, ascending."""
        rows = await self._filtered("page_dead_ids", conn, _DEAD_FRAGMENTS, wanted, [after, upto, limit])
        return [row[0] for row in rows]

    async def show_dead(self, conn: AnyConnection, job_id: JobId) -> DeadLetterDetail | None:
        """Return one dead letter whole, or None if there is none with this id."""
        with driver_errors():
            row = await conn.fetchrow(self._sql["show_dead"], job_id)
        return None if row is None else DeadLetterDetail(*row)

    async def list_jobs(
        self, conn: AnyConnection, wanted: JobFilter, *, states: Sequence[State], limit: int
    ) -> list[ListedJob]:
        """Return the newest jobs first, at most *limit*, of those in *states*: waiting, running, done.

        All are of one snapshot, so that no job is listed twice.
        """
        jobs: list[ListedJob] = []
        with driver_errors():
            async with conn.transaction(isolation="repeatable_read", readonly=True):
                for state in states:
                    fragments = _WAITING_FRAGMENTS if state is State.WAITING else _JOB_FRAGMENTS
                    rows = await self._filtered(f"list_{state}", conn, fragments, wanted, [limit])
                    jobs += [ListedJob(*row) for row in rows]
        jobs.sort(key=lambda job: job.id, reverse=True)
        return jobs[:limit]

    async def show_job(self, conn: AnyConnection, job_id: JobId) -> JobDetail | None:
        """Return one job whole, waiting, running or done, or None if it is none of these."""
        with driver_errors():
            row = await conn.fetchrow(self._sql["show_job"], job_id)
        return None if row is None else JobDetail(*row)

    async def explain_job(self, conn: AnyConnection, job_id: JobId) -> Explanation:
        """Say why a job is not running, or that it runs or has ended. One that is nowhere has the reason `unknown`."""
        with driver_errors():
            row = await conn.fetchrow(self._sql["explain_job"], job_id)
        assert row is not None  # the function answers always
        return Explanation(*row)

    async def has_ready(self, conn: AnyConnection, queues: Sequence[str], kinds: Sequence[str]) -> bool:
        """Say whether any job of these queues and kinds is ready now."""
        with driver_errors():
            ready: bool = await conn.fetchval(self._sql["has_ready"], queues, kinds)
        return ready

    async def _filtered(
        self,
        name: str,
        conn: AnyConnection,
        fragments: Mapping[str, str],
        wanted: DeadFilter | JobFilter,
        first: list[object],
    ) -> list[Record]:
        """Run a statement with the filter joined in; its own parameters are *first*."""
        values = list(first)
        conditions = []
        for field, fragment in fragments.items():
            value = getattr(wanted, field)
            if value is not None:
                values.append(value)
                conditions.append(fragment.format(f"${len(values)}"))
        text = self._sql[name].replace("/* filter */", "".join(f" and {condition}" for condition in conditions))
        with driver_errors():
            return await conn.fetch(text, *values)
