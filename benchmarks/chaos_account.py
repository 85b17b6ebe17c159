"""The account of a `chaos` run: every order, every job and every call of a handler, held against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from benchmarks.chaos_books import Call, Life, Record

WORKER_LOST = "WorkerLost"
LEASE_LAPSED = "LeaseLapsed"
DRAINED = "Drained"
REASONS = {WORKER_LOST: "worker_lost", LEASE_LAPSED: "lease_lapsed", DRAINED: "drained"}
"""Of the types that jobq itself writes. Every other one is of an exception: the handler failed."""
FAILED = "failed"


class Account(msgspec.Struct):
    """What became of the orders. *lost*, *ghosts*, *unexplained* and *late* break a promise: they should be empty.

    *duplicates* are calls of a handler beyond the first of a job, *by_reason* those that a record explains.
    """

    jobs: int = 0
    duplicates: int = 0
    by_reason: Counter[str] = msgspec.field(default_factory=Counter)
    lost: list[int] = msgspec.field(default_factory=list)
    """Committed orders whose job has no end, or is done and was never run."""
    ghosts: list[int] = msgspec.field(default_factory=list)
    """Jobs of orders that were rolled back, or second jobs of an order."""
    unexplained: list[int] = msgspec.field(default_factory=list)
    late: list[int] = msgspec.field(default_factory=list)
    """Jobs that were done, or wrote their row, by another attempt than the last that started."""
    condemned: list[int] = msgspec.field(default_factory=list)
    """Dead letters of handlers that never fail: a worker was killed three times with the job in hand, the last time
    while it ran nothing else, as a job that kills its worker would have it."""
    interrupted: list[Life] = msgspec.field(default_factory=list)
    """The lives with records."""


async def draw_up(lives: AsyncIterator[Life]) -> Account:
    """Judge every life."""
    account = Account()
    seen: set[int] = set()
    async for life in lives:
        if life.job_id is None or life.outcome == "unfinished":
            account.lost.append(life.order_id or life.job_id or 0)
        elif life.order_id is None or life.order_id in seen:
            account.ghosts.append(life.job_id)
        else:
            seen.add(life.order_id)
            account.jobs += 1
            _judge(account, life, life.job_id)
    return account


def _judge(account: Account, life: Life, job_id: int) -> None:
    account.duplicates += max(0, len(life.calls) - 1)
    by_reason, unexplained = explain(life.calls, life.records)
    account.by_reason.update(by_reason)
    account.unexplained += [job_id] * len(unexplained)
    if life.records:
        account.interrupted.append(life)
    if life.outcome != "done":
        if life.kind != "reject":
            account.condemned.append(job_id)
        return
    if not life.calls:
        account.lost.append(job_id)
        return
    last = life.calls[-1]
    is_owner = (last.worker_id, last.attempt) == (life.worker_id, life.attempt)
    if not is_owner or (life.kind == "transfer" and life.fences != [last.fence]):
        account.late.append(job_id)


def explain(calls: Sequence[Call], records: Iterable[Record]) -> tuple[Counter[str], list[Call]]:
    """Say why each of *calls*, in order, was followed by another: a record names it, by attempt and worker.

    A record explains one call. Returns how many have which reason, and the calls that have none. There may be records
    without a call, of attempts that ended before their handler was called.
    """
    unused: dict[tuple[int, str], list[str]] = {}
    for record in records:
        unused.setdefault((record.attempt, record.worker_id), []).append(record.type)
    by_reason: Counter[str] = Counter()
    unexplained: list[Call] = []
    for call in calls[:-1]:
        if types := unused.get((call.attempt, call.worker_id)):
            by_reason[REASONS.get(types.pop(0), FAILED)] += 1
        else:
            unexplained.append(call)
    return by_reason, unexplained
