"""How checked rows get into the database on a given connection: in bulk, in input order, all or none."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobq.core.enqueue import CHUNK_JOBS, chunks
from jobq.core.job import Enqueued, JobId, JobRow
from jobq.core.names import shown
from jobq.core.payload import LARGE_PAYLOAD_BYTES
from jobq.db.store import Store
from jobq.errors import EnqueueError, LargePayloadWarning, NotInTransactionError

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection


async def add_jobs(
    store: Store,
    conn: AnyConnection,
    rows: Sequence[JobRow],
    *,
    answers_for_s: float,
    notify: bool,
    headers: str | None = None,
) -> list[Enqueued]:
    """Add *rows* in the transaction that *conn* is in, and say what became of each, in the order given."""
    if not rows:
        return []
    ids = await store.draw_ids(conn, len(rows))
    answers = await _take_keys(store, conn, ids, rows, answers_for_s)
    mine = [position for position, answer in enumerate(answers) if answer.created]
    fresh = [rows[position] for position in mine]
    for piece in chunks(fresh):
        await store.insert_jobs(conn, [answers[position].id for position in mine[piece]], fresh[piece], headers)
    if notify and (queues := sorted({row.queue for row in fresh if row.immediate})):
        await store.notify_sleepers(conn, queues)
    return answers


async def _take_keys(
    store: Store, conn: AnyConnection, ids: Sequence[JobId], rows: Sequence[JobRow], answers_for_s: float
) -> list[Enqueued]:
    """Return what becomes of each row: created under its id, or another job's id by its idempotency key."""
    first: dict[tuple[str, str], JobId] = {}
    for job_id, row in zip(ids, rows, strict=True):
        if row.idempotency_key is not None:
            first.setdefault((row.kind, row.idempotency_key), job_id)
    if not first:
        return [Enqueued(job_id, True) for job_id in ids]
    # Sorted over the whole call: two bulk enqueues with overlapping keys wait in one direction only.
    owners: dict[JobId, JobId] = {}
    ordered = sorted(first)
    for start in range(0, len(ordered), CHUNK_JOBS):
        part = ordered[start : start + CHUNK_JOBS]
        owners |= await store.take_keys(
            conn, [first[key] for key in part], [key[0] for key in part], [key[1] for key in part], answers_for_s
        )
    answers = []
    for job_id, row in zip(ids, rows, strict=True):
        if row.idempotency_key is not None:
            taker = first[row.kind, row.idempotency_key]
            owner = owners[taker]
            answers.append(Enqueued(owner, owner == job_id))
        else:
            answers.append(Enqueued(job_id, True))
    return answers


def check_connection(conn: object, autocommit: bool) -> None:
    """Refuse a *conn* that is none of asyncpg's, or one outside a transaction unless *autocommit* allows it."""
    in_transaction = getattr(conn, "is_in_transaction", None)
    if in_transaction is None or not hasattr(conn, "fetchrow"):
        raise EnqueueError(
            f"conn is {shown(conn)}, not an asyncpg connection; from SQLAlchemy pass"
            " (await (await session.connection()).get_raw_connection()).driver_connection",
            field="conn",
            value=conn,
        )
    if not autocommit and not in_transaction():
        raise NotInTransactionError(
            "conn is in no transaction, so the job would not commit or vanish with your writes: use"
            " `async with conn.transaction():`, or pass autocommit=True if that is meant",
            field="conn",
            value=conn,
        )


def warn_if_large(rows: Sequence[JobRow]) -> None:
    """Warn, at the line that enqueues, about the largest of *rows* if it looks like state."""
    largest = max(rows, key=lambda row: row.payload_bytes, default=None)
    if largest is not None and largest.payload_bytes >= LARGE_PAYLOAD_BYTES:
        warnings.warn(
            f"the payload of {largest.kind} has {largest.payload_bytes:,} bytes: enqueue a reference such as an id, and"
            " let the handler load what is true when it runs",
            LargePayloadWarning,
            stacklevel=3,
        )
