"""The account of a fault run: from the producer's file, the ledger and the tables.

Four sentences, for every job but those that fail or come again on purpose. Each committed enqueue has an end. A
rolled-back one has no row and no effect. Each run that was not the last of its job is explained by one record in the
row of the job, wherever that is, which names its attempt and its worker: a failure, a worker lost, a drain, a lapse.
And what is on record as done is the last attempt's: no write by a lost lease was accepted.

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

PLACES = ("waiting", "running", "done", "dead")

ON_PURPOSE = frozenset({"fail", "hang", "poison", "postpone"})
"""Kinds that fail, kill their worker or come back on purpose: no account can tell that from a fault."""

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
    kind: str
    token: str
    place: str
    attempt: int
    worker_id: UUID | None
    records: list[Recorded]

    @property
    def name(self) -> str:
        """What the account calls it."""
        return name_of(self.kind, self.id)


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
    places: Sequence[str] = ("done",),
) -> Account:
    """Compare the books. *places* are where a committed job may be: after the end of all jobs only among the done."""
    by_token: dict[str, list[Row]] = defaultdict(list)
    for row in await _rows(conn, schema):
        by_token[row.token].append(row)
    written: dict[int, list[int]] = defaultdict(list)
    for job_id, fence in await conn.fetch(f"select job_id, fence from {effects}"):
        written[job_id].append(fence)
    ran: dict[str, list[Effect]] = defaultdict(list)
    for effect in ledger.effects():
        if effect.kind not in ON_PURPOSE:
            ran[effect.token].append(effect)

    account = Account([], Counter())
    pid_of = _pids(workers)
    for token, entry in producer.fates().items():
        _judge_fate(account, entry, by_token[token], ran[token], cut_at, places)
    for token in ran.keys() | by_token.keys():
        starts = sorted((one for one in ran[token] if one.what == "start"), key=lambda one: (one.fence, one.at))
        account.runs += len(starts)
        for row in by_token[token]:
            _judge_runs(account, pid_of, row, starts, cut_at)
            _judge_writes(account, pid_of, row, starts, written[row.id], cut_at)
    for token in sorted((ran.keys() | by_token.keys()) - producer.fates().keys()):
        _judge_unheard(account, token, by_token[token], ran[token], places)
    return account


def name_of(kind: str, job_id: int) -> str:
    """Return the token of a job whose payload has none."""
    return f"{kind} {job_id}"


def _judge_fate(
    account: Account,
    entry: Entry,
    rows: Sequence[Row],
    effects: Sequence[Effect],
    cut_at: float,
    places: Sequence[str],
) -> None:
    """The first two sentences."""
    ended = any(one.what == "end" for one in effects)
    found = [row.place for row in rows]
    in_place = len(rows) == 1 and found[0] in places
    name = f"{entry.token} ({entry.fate})"
    match entry.fate:
        case Fate.COMMITTED:
            account.committed += 1
            if not rows and entry.at > cut_at:
                account.lost += 1
            elif not in_place or (found == ["done"] and not ended):
                account.offenders.append(f"{name} is {found or 'nowhere'} and has {'an' if ended else 'no'} end")
        case Fate.UNKNOWN | Fate.INTENDED:
            if (rows and not in_place) or (ended and not rows and entry.at <= cut_at):
                account.offenders.append(f"{name} is {found or 'nowhere'} and has {'an' if ended else 'no'} end")
        case Fate.ROLLED_BACK:
            if rows or effects:
                account.offenders.append(f"{name} is {found or 'nowhere'} and had {len(effects)} effects")


def _judge_unheard(
    account: Account, token: str, rows: Sequence[Row], effects: Sequence[Effect], places: Sequence[str]
) -> None:
    """The first sentence, for a job that is not in the producer's file: the test itself, or a handler, enqueued it."""
    kinds = {row.kind for row in rows} | {one.kind for one in effects}
    if "errand" in kinds or not rows:
        account.offenders.append(f"{token} was never enqueued")
    else:
        _judge_fate(account, Entry(token, Fate.COMMITTED, 0.0), rows, effects, NEVER, places)


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
            account.offenders.append(f"{row.name} ran again after {start}: it says {left}, which is not why")
    if row.place == "done":
        idle = [one for one in left if one.type != WORKER_LOST]
        account.offenders += [f"{row.name} says {one}, and no run is explained by it" for one in idle]


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
        account.offenders.append(f"{row.name} is done and never ran")
        return
    last = starts[-1]
    owner = pid_of.get(row.worker_id)
    if (owner, row.attempt) != (last.pid, last.attempt) and last.at <= cut_at:
        account.offenders.append(f"{row.name} is done by {owner}, attempt {row.attempt}; the last run was {last}")
    if (WORKER_LOST, row.attempt) in {(one.type, one.attempt) for one in row.records} and last.at <= cut_at:
        account.offenders.append(f"{row.name} is done by attempt {row.attempt}, from which it was taken back")
    if len(fences) > 1 or (fences and fences != [last.fence] and last.at <= cut_at):
        account.offenders.append(f"{row.name} has written {fences}, and its last run was {last}")


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
        f"select id, kind, payload ->> 'token', {place}, attempt, worker_id, coalesce(errors, '[]')::text"
        f" from {schema}.{table}"
        for table, place in places.items()
    ]
    return [
        Row(
            job_id,
            kind,
            token or name_of(kind, job_id),
            place,
            attempt,
            worker_id,
            msgspec.json.decode(errors, type=list[Recorded]),
        )
        for job_id, kind, token, place, attempt, worker_id, errors in await conn.fetch(" union all ".join(texts))
        if kind not in ON_PURPOSE
    ]
