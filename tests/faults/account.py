"""The account of a fault run: from the producer's file, the ledger, the tables and the workers' logs.

Four sentences, for every job but those that fail or come again on purpose. Each committed enqueue has an end. A
rolled-back one has no row and no effect. Each run that was not the last of its job is explained by a record that names
it: a failure, a loss of the lease, a worker lost, a drain, a lapse. And what is on record as done is the last
attempt's: no write by a lost lease was accepted.

A promoted replica that had not received everything forgets: `cut_at` says since when nothing was replicated. What was
committed before is held to the four sentences; what was committed later may be gone, and what ran later may run again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
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

BY_ATTEMPT = {
    "worker lost": re.compile(r"\w+ (\d+) was taken back: .* during attempt (\d+)"),
    "failed": re.compile(r"\w+ (\d+) failed at attempt (\d+)"),
    "lost lease": re.compile(r"\w+ (\d+) lost its lease at attempt (\d+)"),
}
"""Log lines that name a job and its attempt."""

BY_WORKER = {
    "drain": re.compile(r"drained: .* cancelled after \d+ s: (.*)"),
    "lapse": re.compile(r"the worker's lease has lapsed: .* handed back: (.*)"),
}
"""Log lines that name all jobs that a worker handed back."""


class Row(msgspec.Struct, frozen=True):
    """Where a job is in the tables."""

    id: int
    kind: str
    token: str
    place: str
    attempt: int
    crashes: int
    worker_id: UUID | None


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
    records = Records(workers)
    for token, entry in producer.fates().items():
        _judge_fate(account, entry, by_token[token], ran[token], cut_at, places)
    for token in ran.keys() | by_token.keys():
        starts = sorted((one for one in ran[token] if one.what == "start"), key=lambda one: (one.fence, one.at))
        account.runs += len(starts)
        for row in by_token[token]:
            _judge_runs(account, records, row, starts, cut_at)
            _judge_writes(account, records, row, starts, written[row.id], cut_at)
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


def _judge_runs(account: Account, records: Records, row: Row, starts: Sequence[Effect], cut_at: float) -> None:
    """The third sentence."""
    unseen = row.crashes - records.count("worker lost", row.id)
    for start in starts[:-1]:
        if (reason := records.reason_of(row.id, start)) is not None:
            account.reasons[reason] += 1
        elif unseen > 0:  # the reaper's answer was lost; the count in the row is the record
            unseen -= 1
            account.reasons["worker lost, on record in the row"] += 1
        elif start.at > cut_at or starts[-1].at > cut_at:
            account.reasons["not replicated"] += 1
        else:
            account.offenders.append(f"{row.kind} {row.id} ran again after {start}: nobody says why")


def _judge_writes(
    account: Account, records: Records, row: Row, starts: Sequence[Effect], fences: Sequence[int], cut_at: float
) -> None:
    """The fourth sentence."""
    if row.place != "done":
        return
    if not starts:
        account.offenders.append(f"{row.kind} {row.id} is done and never ran")
        return
    last = starts[-1]
    owner, name = records.pid_of.get(row.worker_id), f"{row.kind} {row.id}"
    if (owner, row.attempt) != (last.pid, last.attempt) and last.at <= cut_at:
        account.offenders.append(f"{name} is done by {owner}, attempt {row.attempt}; the last run was {last}")
    if records.was_taken_back(row.id, row.attempt) and last.at <= cut_at:
        account.offenders.append(f"{name} is done by attempt {row.attempt}, from which it was taken back")
    if len(fences) > 1 or (fences and fences != [last.fence] and last.at <= cut_at):
        account.offenders.append(f"{name} has written {fences}, and its last run was {last}")


class Records:
    """What the workers' logs say about runs that were not the last."""

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self.pid_of: dict[UUID | None, int] = {}
        self._named: Counter[tuple[str, int, int]] = Counter()
        self._cancelled: Counter[tuple[str, int, int]] = Counter()
        self._counts: Counter[tuple[str, int]] = Counter()
        for worker in workers:
            for line in worker.log.splitlines():
                self._read(worker.pid, line)

        self._taken_back = {(job_id, attempt) for reason, job_id, attempt in self._named if reason == "worker lost"}

    def _read(self, pid: int, line: str) -> None:
        if found := re.search(r"worker (\S{36}) started", line):
            self.pid_of[UUID(found[1])] = pid
        for reason, pattern in BY_ATTEMPT.items():
            if found := pattern.search(line):
                self._named[reason, int(found[1]), int(found[2])] += 1
                self._counts[reason, int(found[1])] += 1
        for reason, pattern in BY_WORKER.items():
            if found := pattern.search(line):
                for job_id in re.findall(r"\w+ (\d+)", found[1]):
                    self._cancelled[reason, int(job_id), pid] += 1

    def count(self, reason: str, job_id: int) -> int:
        """Return how often a job's attempts ended for *reason*."""
        return self._counts[reason, job_id]

    def was_taken_back(self, job_id: int, attempt: int) -> bool:
        """Say whether a job was taken from this attempt, which may write nothing about it any more."""
        return (job_id, attempt) in self._taken_back

    def reason_of(self, job_id: int, start: Effect) -> str | None:
        """Return why the run that *start* began was not the last. Each record explains one run."""
        for reason in BY_WORKER:
            if self._cancelled[reason, job_id, start.pid]:
                self._cancelled[reason, job_id, start.pid] -= 1
                return reason
        for reason in BY_ATTEMPT:
            if self._named[reason, job_id, start.attempt]:
                self._named[reason, job_id, start.attempt] -= 1
                return reason
        return None


async def _rows(conn: Connection[Record], schema: str) -> list[Row]:
    places = {
        "job": "case when worker_id is null then 'waiting' else 'running' end",
        "done": "'done'",
        "dead_letter": "'dead'",
    }
    texts = [
        f"select id, kind, payload ->> 'token', {place}, attempt, crashes, worker_id from {schema}.{table}"
        for table, place in places.items()
    ]
    rows = await conn.fetch(" union all ".join(texts))
    return [
        Row(job_id, kind, token or name_of(kind, job_id), *rest)
        for job_id, kind, token, *rest in rows
        if kind not in ON_PURPOSE
    ]
