"""Idempotency keys as the tests use them: one key, asked for again and again, whose time may be over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from jobq import Enqueued, Queue
from tests.db.rows import KIND, QUEUE, Rows

if TYPE_CHECKING:
    from tests.conftest import Conn

KEY = "receipt:7"
BEGINNING = datetime.min.replace(tzinfo=UTC)
"""Where a round of purges starts."""


async def enqueue(
    queue: Queue, conn: Conn | None = None, *, key: str = KEY, answers_for: timedelta | float = 86_400.0
) -> Enqueued:
    """Ask for one job by its key."""
    return await queue.enqueue(
        KIND, {}, queue=QUEUE, idempotency_key=key, idempotency_for=answers_for, conn=conn, autocommit=True
    )


async def lapse(rows: Rows) -> None:
    """Let the time of every key be over."""
    await rows.run("update @schema@.idempotency_key set until = clock_timestamp() - interval '1 microsecond'")


async def keys(rows: Rows) -> list[str]:
    """The keys that are not forgotten."""
    found: list[str] = await rows.value("select array(select key from @schema@.idempotency_key order by key)")
    return found


async def purge(rows: Rows, limit: int) -> list[int]:
    """Do one round, and return how many keys each page looked at."""
    seen, after = [limit], BEGINNING
    while seen[-1] == limit:
        count, last = await rows.store.purge_keys(rows.conn, after, limit)
        seen.append(count)
        after = last or after
    return seen[1:]
