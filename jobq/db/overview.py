"""How the queues stand: what `jobq stats` shows, at a cost that does not grow with the number of waiting jobs.

All figures are those of the stable views (migration 0004), whose counts stop at `COUNT_LIMIT`; those of a look are of
one snapshot, so that no job is counted as waiting and as running.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from jobq.core.usual import propose_timeout_s
from jobq.db.connect import driver_errors
from jobq.db.statements import load_statements

if TYPE_CHECKING:
    from asyncpg import Record

    from jobq.db.connect import AnyConnection

COUNT_LIMIT = 10_000
"""Who sees that so many wait needs no better number: counting seven million takes seconds. The views count one more."""

WINDOW_S = 3600
"""How far back the figures of the kinds go: the longer of the two windows of the view."""


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


class KindStats(msgspec.Struct, frozen=True):
    """What became of one kind's attempts lately; *failure_rate* is the share that was retried or died.

    Percentiles are upper bounds of the buckets of `core/histogram.py`, None if no attempt ended. The proposal is of the
    kind in all queues, as its time-out is; None if too few attempts ended.
    """

    queue: str
    kind: str
    done: int
    retried: int
    dead: int
    failure_rate: float | None
    p50_ms: float | None
    p95_ms: float | None
    proposed_timeout_s: float | None


class RunningKind(msgspec.Struct, frozen=True):
    """How many jobs of a kind run in a queue, and how long ago the first of them was claimed."""

    queue: str
    kind: str
    running: int
    oldest_s: float


class Unserved(msgspec.Struct, frozen=True):
    """A kind that is ready in a queue in which no live worker takes it."""

    queue: str
    kind: str


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """How the queues stand, longest delay first; how many workers live, and how old the oldest dead letter is.

    *entries*: how many recurring entries are in each state.
    """

    workers: int
    queues: list[QueueStats]
    unserved: list[Unserved]
    oldest_dead_s: float | None
    entries: dict[str, int]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How everything stands: the queues, longest delay first, how many workers are alive, what runs, longest first,
    and the kinds by name.
    """

    workers: int
    queues: list[QueueStats]
    unserved: list[Unserved]
    running: list[RunningKind]
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
                await conn.execute(self._sql["switch_jit_off"])
                running = await conn.fetch(self._sql["list_running_kinds"])
                kinds = await conn.fetch(self._sql["list_kinds"], WINDOW_S)
                durations = await self._durations(conn)
        return Standing(
            workers=now.workers,
            queues=now.queues,
            unserved=now.unserved,
            running=[RunningKind(*row) for row in running],
            window_s=float(WINDOW_S),
            kinds=[_kind(row, durations) for row in kinds],
        )

    async def durations(self, conn: AnyConnection) -> Mapping[str, Mapping[int, int]]:
        """Return how many attempts of each kind ended in the last hour, by bucket of `core/histogram.py`."""
        with driver_errors():
            async with conn.transaction(readonly=True):
                await conn.execute(self._sql["switch_jit_off"])
                return await self._durations(conn)

    async def _durations(self, conn: AnyConnection) -> dict[str, dict[int, int]]:
        by_kind: dict[str, dict[int, int]] = {}
        for kind, bucket, count in await conn.fetch(self._sql["list_durations"], WINDOW_S):
            by_kind.setdefault(kind, {})[bucket] = count
        return by_kind

    async def glance(self, conn: AnyConnection) -> Glance:
        """Return how the queues stand, in whatever transaction *conn* is in: without one, each number of its moment."""
        with driver_errors():
            queues = await conn.fetch(self._sql["list_queues"])
            workers = await conn.fetchval(self._sql["count_workers"])
            unserved = await conn.fetch(self._sql["list_unserved"])
            oldest_dead_s = await conn.fetchval(self._sql["find_oldest_dead"])
            entries = await conn.fetch(self._sql["count_recurring"])
        return Glance(
            workers=workers,
            queues=sorted(map(_queue, queues), key=lambda one: (-(one.oldest_ready_s or 0.0), one.queue)),
            unserved=[Unserved(*row) for row in unserved],
            oldest_dead_s=oldest_dead_s,
            entries={row[0]: row[1] for row in entries},
        )


def _kind(row: Record, durations: Mapping[str, Mapping[int, int]]) -> KindStats:
    queue, kind, done, retried, dead, failure_rate, p50_ms, p95_ms = row
    proposed_s = propose_timeout_s(durations.get(kind, {}))
    return KindStats(queue, kind, done, retried, dead, failure_rate, p50_ms, p95_ms, proposed_s)


def _queue(row: Record) -> QueueStats:
    queue, oldest_ready_s, ready, scheduled, running, dead, workers = row
    return QueueStats(
        queue=queue,
        oldest_ready_s=oldest_ready_s,
        ready=Count.of(ready),
        scheduled=Count.of(scheduled),
        running=Count.of(running),
        dead=Count.of(dead),
        workers=workers,
    )
