"""The account of a fault run: from the producer's file, the ledger and the tables.

Four sentences, for every job of the kind `errand`. Each committed enqueue has an end. A rolled-back one has no row and
no effect. Each run that was not the last of its job is explained by one record in the row of the job, wherever that is,
which names its attempt and its worker: a failure, a worker lost, a drain, a lapse. And what is on record as done is the
last attempt's: no write by a lost lease was accepted.

The ledger knows a worker by its process, the tables by its id, and forget it when it ends: which is which is all that
the workers' logs are read for.

A promoted replica that had not received everything forgets: `cut_at` says since when nothing was replicated. What was
committed before is held to the four sentences; what was committed later may be gone, and what ran later may run again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from tests.faults.fleet import WorkerProcess
from tests.faults.ledger import Effect, Ledger
from tests.faults.producer import Entry, Fate, Producer

if TYPE_CHECKING:
    from asyncpg import Connection, Record

NEVER = float("inf")

WORKER_LOST = "WorkerLost"
REASONS = {WORKER_LOST: "worker lost", "Drained": "drain", "LeaseLapsed": "lapse"}
"""What a record of this type is called; every other one is a failure."""


class Recorded(msgspec.Struct, frozen=True):
    """One of a job's errors."""

    type: str
    attempt: int
    worker_id: UUID

    @property
    def reason(self) -> str:
        """Why the run was not the last."""
        return REASONS.get(self.type, "failed")


class Row(msgspec.Struct, frozen=True):
    """Where a job is in the tables, and what stands there."""

    id: int
    token: str
    place: str
    attempt: int
    worker_id: UUID | None
    records: list[Recorded]


class Account(msgspec.Struct):
    """What was found. *offenders* are sentences; *reasons* counts those of the extra runs."""

    offenders: list[str]
    reasons: Counter[str]
    committed: int = 0
    lost: int = 0
    runs: int = 0


async def draw_up(
    conn: Connection[Record],
    *,
    producer: Producer,
    ledger: Ledger,
    workers: Sequence[WorkerProcess],
    schema: str = "jobq",
    effects: str = "jobq.effects",
    cut_at: float = NEVER,
) -> Account:
    """Compare the books."""
    by_token: dict[str, list[Row]] = defaultdict(list)
    for row in await _rows(conn, schema):
        by_token[row.token].append(row)
    written: dict[int, list[int]] = defaultdict(list)
    for job_id, fence in await conn.fetch(f"select job_id, fence from {effects}"):
        written[job_id].append(fence)
    ran: dict[str, list[Effect]] = defaultdict(list)
    for effect in ledger.effects(kind="errand"):
        ran[effect.token].append(effect)

    account = Account([], Counter())
    pid_of = _pids(workers)
    for token, entry in producer.fates().items():
        _judge_fate(account, entry, by_token[token], ran[token], cut_at)
    for token in ran.keys() | by_token.keys():
        starts = sorted((one for one in ran[token] if one.what == "start"), key=lambda one: (one.fence, one.at))
        account.runs += len(starts)
        for row in by_token[token]:
            _judge_runs(account, pid_of, row, starts, cut_at)
            _judge_writes(account, pid_of, row, starts, written[row.id], cut_at)
    unheard = (ran.keys() | by_token.keys()) - producer.fates().keys()
    account.offenders += [f"errand {token} was never enqueued" for token in sorted(unheard)]
    return account


def _judge_fate(account: Account, entry: Entry, rows: Sequence[Row], effects: Sequence[Effect], cut_at: float) -> None:
    """The first two sentences."""
    ended = any(one.what == "end" for one in effects)
    places = [row.place for row in rows]
    name = f"errand {entry.token} ({entry.fate})"
    match entry.fate:
        case Fate.COMMITTED:
            account.committed += 1
            if not rows and entry.at > cut_at:
                account.lost += 1
            elif places != ["done"] or not ended:
                account.offenders.append(f"{name} is {places or 'nowhere'} and has {'an' if ended else 'no'} end")
        case Fate.UNKNOWN | Fate.INTENDED:
            if places not in ([], ["done"]) or (ended and not rows and entry.at <= cut_at):
                account.offenders.append(f"{name} is {places or 'nowhere'} and has {'an' if ended else 'no'} end")
        case Fate.ROLLED_BACK:
            if rows or effects:
                account.offenders.append(f"{name} is {places or 'nowhere'} and had {len(effects)} effects")


def _judge_runs(
    account: Account, pid_of: Mapping[UUID | None, int], row: Row, starts: Sequence[Effect], cut_at: float
) -> None:
    """The third sentence."""
    # A worker that is lost between claim and start leaves a record without a run, so those are the last to be taken.
    left = sorted(row.records, key=lambda one: one.type == WORKER_LOST)
    for start in starts[:-1]:
        named = (one for one in left if (one.attempt, pid_of.get(one.worker_id)) == (start.attempt, start.pid))
        if (record := next(named, None)) is not None:
            left.remove(record)
            account.reasons[record.reason] += 1
        elif start.at > cut_at or starts[-1].at > cut_at:
            account.reasons["not replicated"] += 1
        else:
            account.offenders.append(f"errand {row.id} ran again after {start}: it says {left}, which is not why")
    if row.place == "done":
        idle = [one for one in left if one.type != WORKER_LOST]
        account.offenders += [f"errand {row.id} says {one}, and no run is explained by it" for one in idle]


def _judge_writes(
    account: Account,
    pid_of: Mapping[UUID | None, int],
    row: Row,
    starts: Sequence[Effect],
    fences: Sequence[int],
    cut_at: float,
) -> None:
    """The fourth sentence."""
    if row.place != "done":
        return
    if not starts:
        account.offenders.append(f"errand {row.id} is done and never ran")
        return
    last = starts[-1]
    owner = pid_of.get(row.worker_id)
    if (owner, row.attempt) != (last.pid, last.attempt) and last.at <= cut_at:
        account.offenders.append(f"errand {row.id} is done by {owner}, attempt {row.attempt}; the last run was {last}")
    if (WORKER_LOST, row.attempt) in {(one.type, one.attempt) for one in row.records} and last.at <= cut_at:
        account.offenders.append(f"errand {row.id} is done by attempt {row.attempt}, from which it was taken back")
    if len(fences) > 1 or (fences and fences != [last.fence] and last.at <= cut_at):
        account.offenders.append(f"errand {row.id} has written {fences}, and its last run was {last}")


def _pids(workers: Sequence[WorkerProcess]) -> dict[UUID | None, int]:
    """Return the process of each worker that has started."""
    return {
        UUID(found[1]): worker.pid
        for worker in workers
        if (found := re.search(r"worker (\S{36}) started", worker.log)) is not None
    }


async def _rows(conn: Connection[Record], schema: str) -> list[Row]:
    places = {
        "job": "case when worker_id is null then 'waiting' else 'running' end",
        "done": "'done'",
        "dead_letter": "'dead'",
    }
    texts = [
        f"select id, payload ->> 'token', {place}, attempt, worker_id, coalesce(errors, '[]')::text"
        f" from {schema}.{table} where kind = 'errand'"
        for table, place in places.items()
    ]
    return [
        Row(job_id, token, place, attempt, worker_id, msgspec.json.decode(errors, type=list[Recorded]))
        for job_id, token, place, attempt, worker_id, errors in await conn.fetch(" union all ".join(texts))
    ]
