"""The account of a `chaos` run: every order, every job and every start of a handler, held against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from benchmarks.database import SCHEMA

if TYPE_CHECKING:
    from benchmarks.workers import Conn

ENDS = f"""
    select o.id as order_id, e.id, e.attempt, e.worker_id::text, e.kind, e.outcome
    from chaos_order o
    full join (
        select id, attempt, worker_id, kind, 'done' as outcome, (payload ->> 'order_id')::bigint as order_id
        from {SCHEMA}.done
        union all
        select id, attempt, worker_id, kind, reason, (payload ->> 'order_id')::bigint from {SCHEMA}.dead_letter
        union all
        select id, attempt, worker_id, kind, 'unfinished', (payload ->> 'order_id')::bigint from {SCHEMA}.job
    ) e on e.order_id = o.id
"""
EFFECTS = "select job_id, array_agg(fence) as fences from chaos_effect group by 1"


class Start(msgspec.Struct, frozen=True):
    """One call of a handler."""

    fence: int
    worker_id: str


class Account(msgspec.Struct):
    """What became of the orders. *lost*, *ghosts*, *unexplained* and *late* break a promise: they should be empty.

    *duplicates* are calls of a handler beyond the first of a job. One is explained if the job's row counts an attempt
    for it (a failure, a crash of its worker) or the handler was cancelled (its worker lost the lease, or was stopped).
    """

    jobs: int = 0
    duplicates: int = 0
    lost: list[int] = msgspec.field(default_factory=list)
    """Committed orders whose job has no end."""
    ghosts: list[int] = msgspec.field(default_factory=list)
    """Jobs of orders that were rolled back, or second jobs of an order."""
    unexplained: list[int] = msgspec.field(default_factory=list)
    late: list[int] = msgspec.field(default_factory=list)
    """Jobs that were done, or wrote their row, by another attempt than the last that started."""
    condemned: dict[int, str] = msgspec.field(default_factory=dict)
    """Dead letters of handlers that never fail, and why they died: a worker was killed three times with the job in
    hand, the last time while it ran nothing else, as a job that kills its worker would have it."""


async def take(conn: Conn, ledger: Sequence[str]) -> Account:
    """Hold the tables against the lines of the ledger."""
    starts: defaultdict[int, list[Start]] = defaultdict(list)
    cancelled: defaultdict[int, int] = defaultdict(int)
    for line in ledger:
        what, job_id, fence, worker_id, _ = line.split()
        if what == "start":
            starts[int(job_id)].append(Start(int(fence), worker_id))
        else:
            cancelled[int(job_id)] += 1
    effects = {row["job_id"]: row["fences"] for row in await conn.fetch(EFFECTS)}
    account = Account()
    seen: set[int] = set()
    for order_id, job_id, attempt, worker_id, kind, outcome in await conn.fetch(ENDS):
        if job_id is None or outcome == "unfinished":
            account.lost.append(order_id or job_id)
            continue
        if order_id is None or order_id in seen:
            account.ghosts.append(job_id)
            continue
        seen.add(order_id)
        account.jobs += 1
        calls = starts[job_id]
        account.duplicates += max(0, len(calls) - 1)
        if len(calls) - 1 > attempt - 1 + cancelled[job_id]:
            account.unexplained.append(job_id)
        if outcome != "done":
            if kind != "reject":
                account.condemned[job_id] = outcome
            continue
        last = max(calls, key=lambda call: call.fence)
        if last.worker_id != worker_id or (kind == "transfer" and effects.get(job_id) != [last.fence]):
            account.late.append(job_id)
    return account
