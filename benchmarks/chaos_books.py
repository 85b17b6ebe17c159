"""The books of a `chaos` run: what handlers wrote into a file that the queue cannot touch, and what the tables say."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.database import SCHEMA

if TYPE_CHECKING:
    from benchmarks.workers import Conn

TAIL_BYTES = 20_000

ENDS = f"""
    select
        o.id as order_id, e.id, e.kind, e.outcome, e.attempt, e.worker_id::text,
        extract(epoch from e.ended_at)::float8, coalesce(e.errors, '[]')
    from chaos_order o
    full join (
        select
            id, kind, 'done' as outcome, attempt, worker_id, finished_at as ended_at, errors,
            (payload ->> 'order_id')::bigint as order_id
        from {SCHEMA}.done
        where kind <> 'noop'
        union all
        select id, kind, reason, attempt, worker_id, died_at, errors, (payload ->> 'order_id')::bigint
        from {SCHEMA}.dead_letter
        union all
        select id, kind, 'unfinished', attempt, worker_id, null, errors, (payload ->> 'order_id')::bigint
        from {SCHEMA}.job
    ) e on e.order_id = o.id
"""
EFFECTS = "select job_id, array_agg(fence) as fences from chaos_effect group by 1"
A_PAGE = 1000


class Call(msgspec.Struct, frozen=True):
    """One call of a handler, as it wrote it down itself. *at* is in seconds since the epoch."""

    attempt: int
    fence: int
    worker_id: str
    at: float
    pid: int


class Record(msgspec.Struct, frozen=True):
    """What jobq has on record of the end of an attempt. *type* is an error's, or says how it ended without one."""

    at: datetime
    attempt: int
    worker_id: str
    type: str


class Life(msgspec.Struct, frozen=True):
    """An order and its job: what is missing of either is None. *fences* are of the rows that its handler wrote."""

    order_id: int | None
    job_id: int | None
    kind: str
    outcome: str
    attempt: int
    worker_id: str | None
    ended_at: float | None
    records: list[Record]
    calls: list[Call]
    """In the order of their fences, which is that of their claims."""
    fences: list[int]


class Ledger:
    """The file that the handlers write to, a line for each call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def calls(self) -> dict[int, list[Call]]:
        """Return all calls of each job, in the order of their fences."""
        calls: defaultdict[int, list[Call]] = defaultdict(list)
        with self.path.open() as lines:
            for line in lines:
                job_id, attempt, fence, worker_id, at, pid = line.split()
                call = Call(int(attempt), int(fence), sys.intern(worker_id), float(at), int(pid))
                calls[int(job_id)].append(call)
        for several in calls.values():
            several.sort(key=lambda call: call.fence)
        return calls

    def last_pids(self) -> set[int]:
        """Return the processes that have called the last handlers: every worker that is at work is among them."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - TAIL_BYTES))
            whole = file.read().split(b"\n")[1:-1]
        return {int(line.rpartition(b" ")[2]) for line in whole}


async def read_lives(conn: Conn, calls: dict[int, list[Call]]) -> AsyncIterator[Life]:
    """Give every order and every job once."""
    effects = {row["job_id"]: row["fences"] for row in await conn.fetch(EFFECTS)}
    async with conn.transaction():
        async for order_id, job_id, kind, outcome, attempt, worker_id, ended_at, errors in conn.cursor(
            ENDS, prefetch=A_PAGE
        ):
            yield Life(
                order_id=order_id,
                job_id=job_id,
                kind=kind or "",
                outcome=outcome or "",
                attempt=attempt or 0,
                worker_id=worker_id,
                ended_at=ended_at,
                records=msgspec.json.decode(errors, type=list[Record]),
                calls=calls.get(job_id, []),
                fences=effects.get(job_id, []),
            )
