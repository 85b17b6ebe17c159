"""Every change of a job, one method a statement. The state table in `core/states.py` names them all.

A method runs its statement on the connection that it is given and says what came back; when to call it,
on which connection and what to do about an error is the caller's business. Inside the caller's own
transaction nothing but the statement is sent: no `SET`, no codec, no savepoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from jobq.core.job import ClaimedJob, Enqueued, JobId, JobRow, WorkerId
from jobq.core.position import FRONT, Mark
from jobq.core.worker import WorkerRow
from jobq.db.connect import driver_errors
from jobq.db.statements import load_statements

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection


PURGE_LIMIT_S = 10.0
"""For a page of keys, whose locks an enqueue may wait for: it takes milliseconds."""

_INT_MAX = 2**31 - 1


class Owned(msgspec.Struct, frozen=True):
    """The proof, beside the worker's id, that an attempt still owns its job."""

    id: JobId
    fence: int


class Sleeper(msgspec.Struct, frozen=True):
    """One claim loop that asks to be notified."""

    queue: str
    worker_id: WorkerId
    loop: str


class Reaped(msgspec.Struct, frozen=True):
    """A job that was taken back from a worker that fell silent during *attempt*."""

    id: JobId
    kind: str
    attempt: int


class KindCount(msgspec.Struct, frozen=True):
    """What became of one kind's attempts in one worker; *durations* counts them by bucket of `core/histogram.py`."""

    queue: str
    kind: str
    done: int
    retried: int
    dead: int
    durations: dict[int, int]


class Redriven(msgspec.Struct, frozen=True):
    """What became of one dead letter that was asked to be redriven.

    *owner_id* differs from *id* when a newer job holds its idempotency key: then it was left as it is.
    """

    id: JobId
    owner_id: JobId
    queue: str


class Store:
    """The statements of one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._sql = load_statements(schema)

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue_job(
        self, conn: AnyConnection, job: JobRow, *, answers_for_s: float, notify: bool, headers: str | None = None
    ) -> Enqueued:
        """Add one job, or find the one that already answers for its idempotency key. *headers* is a JSON object."""
        due = job.kind, job.payload, job.queue, job.run_at, job.delay_s, job.priority
        with driver_errors():
            if job.idempotency_key is None and headers is None:
                job_id = await conn.fetchval(self._sql["enqueue_job"], *due, job.max_attempts, notify)
                return Enqueued(job_id, True)
            options = job.idempotency_key, answers_for_s, job.max_attempts, notify, headers
            row = await conn.fetchrow(self._sql["enqueue_keyed"], *due, *options)
        assert row is not None
        return Enqueued(row[0], row[1])

    async def draw_ids(self, conn: AnyConnection, count: int) -> list[JobId]:
        """Draw *count* ids in ascending order."""
        with driver_errors():
            return sorted(await conn.fetchval(self._sql["draw_ids"], count))

    async def take_keys(
        self, conn: AnyConnection, ids: Sequence[JobId], kinds: Sequence[str], keys: Sequence[str], answers_for_s: float
    ) -> dict[JobId, JobId]:
        """Take idempotency keys, sorted by (kind, key), for new jobs. Returns who owns each job's key."""
        with driver_errors():
            rows = await conn.fetch(self._sql["take_keys"], ids, kinds, keys, answers_for_s)
        return {row[0]: row[1] for row in rows}

    async def insert_jobs(
        self, conn: AnyConnection, ids: Sequence[JobId], jobs: Sequence[JobRow], headers: str | None = None
    ) -> None:
        """Add many jobs under ids that were drawn for them. *headers*, a JSON object, are those of each."""
        with driver_errors():
            await conn.execute(
                self._sql["insert_jobs"],
                ids,
                [job.kind for job in jobs],
                [job.payload for job in jobs],
                [job.queue for job in jobs],
                [job.run_at for job in jobs],
                [job.delay_s for job in jobs],
                [job.priority for job in jobs],
                [job.idempotency_key for job in jobs],
                [job.max_attempts for job in jobs],
                headers,
            )

    async def notify_sleepers(self, conn: AnyConnection, queues: Sequence[str]) -> None:
        """Wake the claim loops that sleep on one of *queues*, at commit."""
        with driver_errors():
            await conn.execute(self._sql["notify_sleepers"], queues)

    async def try_listener(self, conn: AnyConnection, said: str) -> None:
        """Say something to whoever listens: one of them waits to hear it."""
        with driver_errors():
            await conn.execute(self._sql["try_listener"], said)

    # -- a worker's hot path -------------------------------------------------------------------------

    async def claim_jobs(
        self,
        conn: AnyConnection,
        *,
        queue: str,
        kinds: Sequence[str],
        limit: int,
        worker_id: WorkerId,
        lease_s: float,
        marks: Sequence[Mark] = FRONT,
    ) -> list[ClaimedJob]:
        """Claim up to *limit* ready jobs from the *marks* of the lanes on, in the order in which they should start."""
        run_ats, ids = zip(*marks, strict=True)
        with driver_errors():
            rows = await conn.fetch(self._sql["claim_jobs"], queue, kinds, limit, worker_id, lease_s, run_ats, ids)
        jobs = [ClaimedJob(*row) for row in rows]
        jobs.sort(key=lambda job: (job.priority, job.run_at, job.id))
        return jobs

    async def find_passed(
        self,
        conn: AnyConnection,
        *,
        queue: str,
        kinds: Sequence[str],
        since: Sequence[Mark],
        marks: Sequence[Mark],
    ) -> datetime | None:
        """Look for ready jobs before the *marks* and from *since* on, whose ids do not count.

        Returns the database's time if there are none, else None.
        """
        sinces = [mark.run_at for mark in since]
        run_ats, ids = zip(*marks, strict=True)
        with driver_errors():
            nothing_until: datetime | None = await conn.fetchval(
                self._sql["find_passed"], queue, kinds, sinces, run_ats, ids
            )
        return nothing_until

    async def settle_done(
        self, conn: AnyConnection, worker_id: WorkerId, owned: Sequence[Owned], run_ms: Sequence[int]
    ) -> set[JobId]:
        """Finish jobs. Returns those that matched; the others are lost leases."""
        return await self._settle("settle_done", conn, worker_id, owned, run_ms)

    async def settle_retry(
        self,
        conn: AnyConnection,
        worker_id: WorkerId,
        owned: Sequence[Owned],
        delays_s: Sequence[float],
        errors: Sequence[str],
    ) -> set[JobId]:
        """Let failed jobs wait for their next attempt. Returns those that matched."""
        return await self._settle("settle_retry", conn, worker_id, owned, delays_s, errors)

    async def settle_released(
        self,
        conn: AnyConnection,
        worker_id: WorkerId,
        owned: Sequence[Owned],
        delays_s: Sequence[float],
        records: Sequence[str | None],
    ) -> set[JobId]:
        """Hand jobs back with their attempt. *records* say why they run again, None of what has nothing to explain.

        Returns those that matched.
        """
        return await self._settle("settle_released", conn, worker_id, owned, delays_s, records)

    async def settle_dead(
        self,
        conn: AnyConnection,
        worker_id: WorkerId,
        owned: Sequence[Owned],
        started: Sequence[bool],
        reasons: Sequence[str],
        errors: Sequence[str],
    ) -> set[JobId]:
        """Make jobs dead letters. Returns those that matched."""
        return await self._settle("settle_dead", conn, worker_id, owned, started, reasons, errors)

    async def _settle(
        self,
        name: str,
        conn: AnyConnection,
        worker_id: WorkerId,
        owned: Sequence[Owned],
        *by_position: Sequence[object],
    ) -> set[JobId]:
        ids, fences, *rest = _ascending(owned, *by_position)
        with driver_errors():
            rows = await conn.fetch(self._sql[name], ids, fences, worker_id, *rest)
        return {row[0] for row in rows}

    async def fall_asleep(self, conn: AnyConnection, sleeper: Sleeper, for_s: float) -> None:
        """Ask enqueues into the sleeper's queue to notify, for *for_s* seconds."""
        with driver_errors():
            await conn.execute(self._sql["fall_asleep"], sleeper.queue, sleeper.worker_id, sleeper.loop, for_s)

    async def wake_up(self, conn: AnyConnection, sleeper: Sleeper) -> None:
        """Ask no longer."""
        with driver_errors():
            await conn.execute(self._sql["wake_up"], sleeper.queue, sleeper.worker_id, sleeper.loop)

    # -- leases --------------------------------------------------------------------------------------

    async def beat(self, conn: AnyConnection, worker: WorkerRow, lease_s: float) -> None:
        """Renew the worker's lease."""
        with driver_errors():
            await conn.execute(
                self._sql["beat"],
                worker.worker_id,
                lease_s,
                worker.pid,
                worker.host,
                worker.version,
                worker.queues,
                worker.kinds,
                msgspec.json.encode(worker.slots).decode(),
            )

    async def say_goodbye(self, conn: AnyConnection, worker_id: WorkerId) -> None:
        """Drop the worker's row at an ordered end."""
        with driver_errors():
            await conn.execute(self._sql["say_goodbye"], worker_id)

    async def renew_jobs(
        self, conn: AnyConnection, worker_id: WorkerId, owned: Sequence[Owned], lease_s: float
    ) -> set[JobId]:
        """Renew the leases of jobs in hand. Returns those that are still owned; the others are lost leases."""
        ids, fences = _ascending(owned)
        with driver_errors():
            rows = await conn.fetch(self._sql["renew_jobs"], ids, fences, worker_id, lease_s)
        return {row[0] for row in rows}

    async def isolate_job(self, conn: AnyConnection, worker_id: WorkerId, owned: Owned) -> bool:
        """Record that this attempt runs alone in its worker. Returns whether it still owns the job."""
        with driver_errors():
            found = await conn.fetchval(self._sql["isolate_job"], owned.id, owned.fence, worker_id)
        return found is not None

    async def release_strays(self, conn: AnyConnection, worker_id: WorkerId, in_hand: Sequence[JobId]) -> list[JobId]:
        """Hand back what bears this worker's id and is not in its hands. Returns the ids."""
        with driver_errors():
            rows = await conn.fetch(self._sql["release_strays"], worker_id, in_hand)
        return [row[0] for row in rows]

    async def list_lapsed_workers(self, conn: AnyConnection) -> list[WorkerId]:
        """Return the workers whose lease has lapsed."""
        with driver_errors():
            return [row[0] for row in await conn.fetch(self._sql["list_lapsed_workers"])]

    async def reap_worker(
        self, conn: AnyConnection, worker_id: WorkerId, *, pause_s: float, limit: int
    ) -> list[Reaped]:
        """Take up to *limit* jobs from a worker, if its lease is still lapsed."""
        with driver_errors():
            rows = await conn.fetch(self._sql["reap_worker"], worker_id, pause_s, limit)
        return [Reaped(*row) for row in rows]

    async def forget_worker(self, conn: AnyConnection, worker_id: WorkerId) -> bool:
        """Drop the row of a lapsed worker that holds nothing any more. Returns whether it was dropped."""
        with driver_errors():
            return await conn.fetchval(self._sql["forget_worker"], worker_id) is not None

    async def list_orphans(self, conn: AnyConnection, limit: int) -> list[Owned]:
        """Return running jobs whose own lease has lapsed."""
        with driver_errors():
            return [Owned(*row) for row in await conn.fetch(self._sql["list_orphans"], limit)]

    async def reap_orphans(self, conn: AnyConnection, orphans: Sequence[Owned], *, pause_s: float) -> list[Reaped]:
        """Take back running jobs whose own lease is still lapsed."""
        ids, fences = _ascending(orphans)
        with driver_errors():
            rows = await conn.fetch(self._sql["reap_orphans"], ids, fences, pause_s)
        return [Reaped(*row) for row in rows]

    # -- dead letters --------------------------------------------------------------------------------

    async def redrive_jobs(self, conn: AnyConnection, ids: Sequence[JobId]) -> list[Redriven]:
        """Make dead letters ready again, except where a newer job holds the idempotency key."""
        with driver_errors():
            rows = await conn.fetch(self._sql["redrive_jobs"], ids)
        return sorted((Redriven(*row) for row in rows), key=lambda one: one.id)

    async def delete_dead_letters(self, conn: AnyConnection, ids: Sequence[JobId]) -> list[JobId]:
        """Drop dead letters for good. Returns those that were there."""
        with driver_errors():
            rows = await conn.fetch(self._sql["delete_dead_letters"], ids)
        return sorted(row[0] for row in rows)

    # -- transactions --------------------------------------------------------------------------------

    async def limit_transaction(self, conn: AnyConnection, limit_s: float) -> None:
        """Let the server end the open transaction when nothing has been heard of its client for so long."""
        limit_ms = int(min(limit_s * 1000, _INT_MAX))
        with driver_errors():
            await conn.execute(self._sql["limit_transaction"], limit_ms)

    # -- retention -----------------------------------------------------------------------------------

    async def empty_oldest_slot(self, conn: AnyConnection) -> int | None:
        """Give back the oldest slot of history. Returns its bytes, or None if it had to be left alone."""
        with driver_errors():
            size: int | None = await conn.fetchval(self._sql["empty_oldest_slot"])
        return size

    async def purge_keys(self, conn: AnyConnection, after: datetime, limit: int) -> tuple[int, datetime | None]:
        """Forget lapsed idempotency keys, one page. Returns how many were looked at, and where to go on."""
        with driver_errors():
            async with conn.transaction(isolation="read_committed"):
                await self.limit_transaction(conn, PURGE_LIMIT_S)
                page = await conn.fetch(self._sql["lock_lapsed_keys"], after, limit)
                await conn.execute(self._sql["purge_keys"], [row[0] for row in page], [row[1] for row in page])
        return len(page), page[-1][2] if page else None

    async def record_kind_stats(self, conn: AnyConnection, worker_id: WorkerId, counts: Sequence[KindCount]) -> None:
        """Append what became of attempts since the last time."""
        with driver_errors():
            await conn.execute(self._sql["record_kind_stats"], worker_id, msgspec.json.encode(counts).decode())

    async def purge_kind_stats(self, conn: AnyConnection, limit: int) -> int:
        """Forget counts older than a day, at most *limit* rows. Returns how many."""
        with driver_errors():
            purged: int = await conn.fetchval(self._sql["purge_kind_stats"], limit)
        return purged

    async def purge_sleepers(self, conn: AnyConnection, limit: int) -> int:
        """Forget claim loops that have been gone for an hour, at most *limit*. Returns how many."""
        with driver_errors():
            purged: int = await conn.fetchval(self._sql["purge_sleepers"], limit)
        return purged


def _ascending(owned: Sequence[Owned], *by_position: Sequence[object]) -> list[list[Any]]:
    """Return ids, fences and what goes with them, by ascending ids: the statements find a position by binary search.

    Of two attempts of one job the later comes last, and is the one that is found.
    """
    rows = sorted(
        zip((one.id for one in owned), (one.fence for one in owned), *by_position, strict=True), key=itemgetter(0, 1)
    )
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(2 + len(by_position))]
