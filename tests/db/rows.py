"""Jobs for the tests: rows with defaults, put into any state by the statements that a worker uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from jobq.core.failure import Failure
from jobq.core.job import JobId, JobRow, WorkerId
from jobq.core.states import State
from jobq.core.worker import WorkerRow
from jobq.db.statements import render
from jobq.db.store import Owned, Store

if TYPE_CHECKING:
    from asyncpg import Record

    from tests.conftest import Conn

KIND = "send_receipt"
QUEUE = "mail"
LEASE_S = 60.0
DAY_S = 86_400.0
TABLES = ("job", "done", "dead_letter", "idempotency_key")


def new_job(**stated: Any) -> JobRow:
    """A job that is ready at once, but for what is *stated*."""
    row = {
        "kind": KIND,
        "payload": '{"order_id": 7}',
        "queue": QUEUE,
        "run_at": None,
        "delay_s": None,
        "priority": 5,
        "idempotency_key": None,
        "max_attempts": None,
        **stated,
    }
    immediate = row["run_at"] is None and not row["delay_s"]
    return JobRow(**row, immediate=immediate)


def new_worker() -> WorkerId:
    """A worker that has done nothing yet."""
    return WorkerId(uuid4())


def worker_row(worker_id: WorkerId) -> WorkerRow:
    """What a worker says of itself, with values that do not matter."""
    return WorkerRow(worker_id, pid=7, host="host", version="0", queues=[QUEUE], kinds=[KIND])


def error_json(message: str = "no answer", *, type: str = "TimeoutError", fingerprint: str = "0123456789ab") -> str:
    """An error as the settler passes it."""
    return msgspec.json.encode(Failure(type, message, f"Traceback of {message}", fingerprint)).decode()


class Attempt(Owned, frozen=True):
    """What whoever runs a job holds of it: the three parts of the proof."""

    worker_id: WorkerId


class Rows:
    """The rows of one schema."""

    def __init__(self, conn: Conn, store: Store) -> None:
        self.conn = conn
        self.store = store

    # -- making ----------------------------------------------------------------------------------------

    async def waiting(self, **stated: Any) -> JobId:
        """Enqueue a job and return its id."""
        answer = await self.store.enqueue_job(self.conn, new_job(**stated), answers_for_s=DAY_S, notify=False)
        assert answer.created
        return answer.id

    async def many_waiting(self, count: int, **stated: Any) -> list[JobId]:
        """Enqueue *count* jobs that differ only in their ids."""
        ids = await self.store.draw_ids(self.conn, count)
        await self.store.insert_jobs(self.conn, ids, [new_job(**stated)] * count)
        return ids

    async def scheduled(self, **stated: Any) -> JobId:
        """Enqueue a job that is due in an hour."""
        return await self.waiting(delay_s=3600.0, **stated)

    async def running(self, worker_id: WorkerId | None = None, **stated: Any) -> Attempt:
        """Enqueue a job and claim it for *worker_id*, or for a live worker of its own."""
        return await self.reclaimed(await self.waiting(**stated), worker_id)

    async def reclaimed(self, job_id: JobId, worker_id: WorkerId | None = None) -> Attempt:
        """Claim the waiting job *job_id*, and no other, for *worker_id* or a live worker of its own."""
        if worker_id is None:
            worker_id = new_worker()
            await self.beat(worker_id)
        # A kind of its own for the moment of the claim, so that other ready jobs of the queue stay.
        kind = await self.value("select kind from @schema@.job where id = $1", job_id)
        queue = await self.value("update @schema@.job set kind = 'this-one' where id = $1 returning queue", job_id)
        (claimed,) = await self.store.claim_jobs(
            self.conn, queue=queue, kinds=["this-one"], limit=1, worker_id=worker_id, lease_s=LEASE_S
        )
        await self.run("update @schema@.job set kind = $2 where id = $1", job_id, kind)
        return Attempt(claimed.id, claimed.fence, worker_id)

    async def dead(self, error: str | None = None, reason: str = "permanent failure", **stated: Any) -> JobId:
        """Make a dead letter that died of *error* in its first attempt."""
        attempt = await self.running(new_worker(), **stated)
        died = await self.store.settle_dead(
            self.conn, attempt.worker_id, [attempt], [True], [reason], [error or error_json()]
        )
        assert died == {attempt.id}
        return attempt.id

    async def many_dead(self, count: int, **stated: Any) -> list[JobId]:
        """Make *count* dead letters that differ only in their ids."""
        ids = await self.many_waiting(count, kind="these", **stated)
        worker_id = new_worker()
        claimed = await self.store.claim_jobs(
            self.conn, queue=QUEUE, kinds=["these"], limit=count, worker_id=worker_id, lease_s=LEASE_S
        )
        await self.run("update @schema@.job set kind = $1 where kind = 'these'", KIND)
        await self.store.settle_dead(
            self.conn,
            worker_id,
            [Owned(job.id, job.fence) for job in claimed],
            [True] * count,
            ["permanent failure"] * count,
            [error_json()] * count,
        )
        return ids

    async def in_state(self, state: State, **stated: Any) -> Attempt:
        """Put a job into *state* after it was claimed, and return what its last attempt holds.

        So the fence of that attempt matches in every state, and a statement that ignores the state would go through.
        """
        attempt = await self.running(new_worker(), **stated)
        match state:
            case State.RUNNING:
                pass
            case State.WAITING:
                await settle(self, "settle_released", attempt)
            case State.DONE:
                await settle(self, "settle_done", attempt)
            case State.DEAD:
                await settle(self, "settle_dead", attempt)
            case State.ABSENT:
                await settle(self, "settle_dead", attempt)
                await self.store.delete_dead_letters(self.conn, [attempt.id])
        return attempt

    async def beat(self, worker_id: WorkerId, lease_s: float = LEASE_S, *, conn: Conn | None = None) -> None:
        """Renew the worker's lease, or make its row; a negative lease has lapsed."""
        await self.store.beat(conn or self.conn, worker_row(worker_id), lease_s)

    async def lapse(self, *attempts: Attempt) -> None:
        """Let the jobs' own leases lapse, of those that are running."""
        await self.run(
            "update @schema@.job set lease_until = clock_timestamp() - interval '1 s'"
            " where id = any($1::bigint[]) and worker_id is not null",
            [attempt.id for attempt in attempts],
        )

    # -- asking ----------------------------------------------------------------------------------------

    async def state_of(self, job_id: JobId) -> State:
        """Return where the job is; fail if it is in two places."""
        found: list[str] = await self.value(
            """
            select array(
                select case when worker_id is null then 'waiting' else 'running' end from @schema@.job where id = $1
                union all select 'done' from @schema@.done where id = $1
                union all select 'dead' from @schema@.dead_letter where id = $1
            )
            """,
            job_id,
        )
        assert len(found) < 2, f"job {job_id} is in {found}"
        return State(found[0]) if found else State.ABSENT

    async def contents(self, *but: JobId) -> dict[str, list[str]]:
        """Return every row of every table, whole, without the jobs *but*."""
        found = {}
        for table in TABLES:
            job_id = "job_id" if table == "idempotency_key" else "id"
            whole = f"select t::text from @schema@.{table} t where {job_id} <> all($1::bigint[]) order by 1"
            found[table] = await self.value(f"select array({whole})", but)
        return found

    async def job(self, job_id: JobId) -> Record:
        """Return the row of a live job."""
        return await self.row("select * from @schema@.job where id = $1", job_id)

    async def dead_letter(self, job_id: JobId) -> Record:
        """Return the row of a dead letter."""
        return await self.row("select * from @schema@.dead_letter where id = $1", job_id)

    async def ids(self, table: str = "job", where: str = "true") -> list[JobId]:
        """Return the ids in a table, ascending."""
        ids: list[JobId] = await self.value(f"select array(select id from @schema@.{table} where {where} order by id)")
        return ids

    async def count(self, table: str = "job", where: str = "true") -> int:
        """Return how many rows a table has."""
        count: int = await self.value(f"select count(*) from @schema@.{table} where {where}")
        return count

    async def value(self, text: str, *values: object) -> Any:
        """Return the one value that the statement *text*, with the schema's token in it, answers."""
        return await self.conn.fetchval(render(text, self.store.schema), *values)

    async def row(self, text: str, *values: object) -> Record:
        """Return the one row that the statement *text* answers."""
        (row,) = await self.conn.fetch(render(text, self.store.schema), *values)
        return row

    async def run(self, text: str, *values: object) -> None:
        """Run the statement *text*, or a script of them without *values*."""
        await self.conn.execute(render(text, self.store.schema), *values)


async def settle(rows: Rows, statement: str, *attempts: Attempt, conn: Conn | None = None) -> set[JobId]:
    """Write about attempts of one worker by a statement that takes the proof, on *conn* or that of *rows*."""
    conn = conn or rows.conn
    return await PROVEN[statement](rows.store, conn, attempts[0].worker_id, attempts)


async def _done(store: Store, conn: Conn, worker_id: WorkerId, proofs: Sequence[Owned]) -> set[JobId]:
    return await store.settle_done(conn, worker_id, proofs, [12] * len(proofs))


async def _retry(store: Store, conn: Conn, worker_id: WorkerId, proofs: Sequence[Owned]) -> set[JobId]:
    return await store.settle_retry(conn, worker_id, proofs, [0.0] * len(proofs), [error_json()] * len(proofs))


async def _released(store: Store, conn: Conn, worker_id: WorkerId, proofs: Sequence[Owned]) -> set[JobId]:
    return await store.settle_released(conn, worker_id, proofs, [0.0] * len(proofs), [None] * len(proofs))


async def _dead(store: Store, conn: Conn, worker_id: WorkerId, proofs: Sequence[Owned]) -> set[JobId]:
    reasons, errors = ["permanent failure"] * len(proofs), [error_json()] * len(proofs)
    return await store.settle_dead(conn, worker_id, proofs, [True] * len(proofs), reasons, errors)


async def _renewed(store: Store, conn: Conn, worker_id: WorkerId, proofs: Sequence[Owned]) -> set[JobId]:
    return await store.renew_jobs(conn, worker_id, proofs, LEASE_S)


async def _isolated(store: Store, conn: Conn, worker_id: WorkerId, proofs: Sequence[Owned]) -> set[JobId]:
    return {proof.id for proof in proofs if await store.isolate_job(conn, worker_id, proof)}


SETTLES = {"settle_done": _done, "settle_retry": _retry, "settle_released": _released, "settle_dead": _dead}
"""Each settle with values that do not matter."""

PROVEN = {**SETTLES, "renew_jobs": _renewed, "isolate_job": _isolated}
"""Each statement that takes id, fence and worker, and answers which matched."""
