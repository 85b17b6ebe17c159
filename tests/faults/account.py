"""The account of a fault run: from the producer's file, the ledger, the tables and the workers' logs.

Four sentences, for every job of the kind `errand`. Each committed enqueue has an end. A rolled-back one has no row and
no effect. Each run that was not the last of its job is explained by a record that names it: a failure, a loss of the
lease, a worker lost, a drain, a lapse. And what is on record as done is the last attempt's: no write by a lost lease
was accepted.

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


BY_ATTEMPT = {
    "worker lost": re.compile(r"errand (\d+) was taken back: .* during attempt (\d+)"),
    "failed": re.compile(r"errand (\d+) failed at attempt (\d+)"),
    "lost lease": re.compile(r"errand (\d+) lost its lease at attempt (\d+)"),
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
    records = Records(workers)
    for token, entry in producer.fates().items():
        _judge_fate(account, entry, by_token[token], ran[token], cut_at)
    for token in ran.keys() | by_token.keys():
        starts = sorted((one for one in ran[token] if one.what == "start"), key=lambda one: (one.fence, one.at))
        account.runs += len(starts)
        for row in by_token[token]:
            _judge_runs(account, records, row, starts, cut_at)
            _judge_writes(account, records, row, starts, written[row.id], cut_at)
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
            account.offenders.append(f"errand {row.id} ran again after {start}: nobody says why")


def _judge_writes(
    account: Account, records: Records, row: Row, starts: Sequence[Effect], fences: Sequence[int], cut_at: float
) -> None:
    """The fourth sentence."""
    if row.place != "done":
        return
    if not starts:
        account.offenders.append(f"errand {row.id} is done and never ran")
        return
    last = starts[-1]
    owner = records.pid_of.get(row.worker_id)
    if (owner, row.attempt) != (last.pid, last.attempt) and last.at <= cut_at:
        account.offenders.append(f"errand {row.id} is done by {owner}, attempt {row.attempt}; the last run was {last}")
    if records.was_taken_back(row.id, row.attempt) and last.at <= cut_at:
        account.offenders.append(f"errand {row.id} is done by attempt {row.attempt}, from which it was taken back")
    if len(fences) > 1 or (fences and fences != [last.fence] and last.at <= cut_at):
        account.offenders.append(f"errand {row.id} has written {fences}, and its last run was {last}")


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
                for job_id in re.findall(r"errand (\d+)", found[1]):
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
        f"select id, payload ->> 'token', {place}, attempt, crashes, worker_id from {schema}.{table}"
        " where kind = 'errand'"
        for table, place in places.items()
    ]
    return [Row(*row) for row in await conn.fetch(" union all ".join(texts))]
