"""How the queues stand: what `jobq stats` shows, at a cost that does not grow with the number of waiting jobs.

Counts stop at `COUNT_LIMIT`, except of what workers hold, which their slots bound, and of what they have counted
themselves. All answers of a look are of one snapshot, so that no job is counted as waiting and as running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jobq.core.histogram import percentile_ms
from jobq.db.connect import driver_errors
from jobq.db.statements import load_statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncpg import Record

    from jobq.db.connect import AnyConnection

COUNT_LIMIT = 10_000
"""Who sees that so many wait needs no better number, and counting seven million takes seconds."""

WINDOW_S = 3600.0
"""How far back the figures of the kinds go."""

UNSERVED_LOOK = 1000
"""How many of the oldest ready jobs of each queue and priority are asked for a kind that nobody takes."""


class Count(msgspec.Struct, frozen=True):
    """How many there are: exactly, or at least, if *capped*."""

    count: int
    capped: bool = False

    @classmethod
    def of(cls, found: int) -> Count:
        """Return the count of what was *found* by looking for one more than the limit."""
        return cls(min(found, COUNT_LIMIT), found > COUNT_LIMIT)


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue now. *oldest_ready_s*: how long the oldest ready job has been ready; *workers* that are alive."""

    queue: str
    oldest_ready_s: float | None
    ready: Count
    scheduled: Count
    running: Count
    dead: Count
    workers: int


class KindStats(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one kind's attempts lately; *failure_rate* is the share that was retried or died.

    Percentiles are those of `core/histogram.py`, None if no attempt ended.
    """

    queue: str
    kind: str
    done: int
    retried: int
    dead: int
    failure_rate: float | None
    p50_ms: float | None
    p95_ms: float | None


class Unserved(msgspec.Struct, frozen=True):
    """A kind that is ready in a queue in which no live worker takes it."""

    queue: str
    kind: str


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """How the queues stand, longest delay first; how many workers live, and how old the oldest dead letter is."""

    workers: int
    queues: list[QueueStats]
    unserved: list[Unserved]
    oldest_dead_s: float | None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How everything stands: the queues, longest delay first, the kinds by name, and how many workers are alive."""

    workers: int
    queues: list[QueueStats]
    unserved: list[Unserved]
    window_s: float
    kinds: list[KindStats]


class Overview:
    """The figures of one schema."""

    def __init__(self, schema: str) -> None:
        self._sql = load_statements(schema)

    async def look(self, conn: AnyConnection) -> Standing:
        """Return how everything stands now."""
        with driver_errors():
            async with conn.transaction(isolation="repeatable_read", readonly=True):
                now = await self.glance(conn)
                kinds = await conn.fetch(self._sql["sum_kind_stats"], WINDOW_S)
        return Standing(
            workers=now.workers,
            queues=now.queues,
            unserved=now.unserved,
            window_s=WINDOW_S,
            kinds=[_kind(row) for row in kinds],
        )

    async def glance(self, conn: AnyConnection) -> Glance:
        """Return how the queues stand, in whatever transaction *conn* is in: without one, each number of its moment."""
        one_more = COUNT_LIMIT + 1
        with driver_errors():
            waiting = await conn.fetch(self._sql["count_waiting"], one_more)
            running = await conn.fetch(self._sql["count_running"])
            dead = await conn.fetch(self._sql["count_dead_by_queue"], one_more)
            oldest_dead_s: float | None = await conn.fetchval(self._sql["find_oldest_dead"])
            workers = await conn.fetch(self._sql["count_workers"])
            unserved = await conn.fetch(self._sql["list_unserved"], UNSERVED_LOOK)
        alive = next((row[1] for row in workers if row[0] is None), 0)
        serving = _by_queue(row for row in workers if row[0] is not None)
        return Glance(
            workers=alive,
            queues=_queues(waiting, _by_queue(running), _by_queue(dead), serving),
            unserved=[Unserved(*row) for row in unserved],
            oldest_dead_s=oldest_dead_s,
        )


def _by_queue(rows: Iterable[Record]) -> dict[str, int]:
    return {row[0]: row[1] for row in rows}


def _queues(
    waiting: Iterable[Record],
    running: Mapping[str, int],
    dead: Mapping[str, int],
    workers: Mapping[str, int],
) -> list[QueueStats]:
    """Put together what is known of each queue that anything is known of."""
    ready: dict[str, int] = {}
    scheduled: dict[str, int] = {}
    oldest_s: dict[str, float | None] = {}
    for row in waiting:
        ready[row[0]], scheduled[row[0]], oldest_s[row[0]] = row[1], row[2], row[3]
    queues = [
        QueueStats(
            queue=queue,
            oldest_ready_s=oldest_s.get(queue),
            ready=Count.of(ready.get(queue, 0)),
            scheduled=Count.of(scheduled.get(queue, 0)),
            running=Count.of(running.get(queue, 0)),
            dead=Count.of(dead.get(queue, 0)),
            workers=workers.get(queue, 0),
        )
        for queue in sorted({*oldest_s, *running, *dead, *workers})
    ]
    return sorted(queues, key=lambda one: one.oldest_ready_s or 0.0, reverse=True)


def _kind(row: Record) -> KindStats:
    queue, kind, done, retried, dead, buckets, counts = row
    ended = done + retried + dead
    durations = dict(zip(buckets, counts, strict=True))
    return KindStats(
        queue=queue,
        kind=kind,
        done=done,
        retried=retried,
        dead=dead,
        failure_rate=(retried + dead) / ended if ended else None,
        p50_ms=percentile_ms(durations, 0.50),
        p95_ms=percentile_ms(durations, 0.95),
    )
