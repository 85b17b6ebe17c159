"""How long after each fault of a `chaos` run the work went on elsewhere, by itself.

After a kill, a freeze or the end of a stop: until the jobs that its victim had in hand were called again. After a
restart: until the jobs of each worker that it cost its lease were, and until a job was done that was claimed after it.
No clock runs while the database is away: it starts anew when it is back.

All times are of one machine's clock, in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from benchmarks.chaos_account import LEASE_LAPSED, WORKER_LOST
from benchmarks.chaos_books import Call, Life, Record


class Fault(msgspec.Struct, frozen=True):
    """What happened to a worker, and when. *is_final* says that the process was gone."""

    pid: int
    at: float
    is_final: bool


class Outage(msgspec.Struct, frozen=True):
    """When the database was away."""

    began_at: float
    ended_at: float


class Recovery(msgspec.Struct, frozen=True, order=True):
    """How long *what* waited after a fault."""

    seconds: float
    what: str


def recoveries(lives: Iterable[Life], faults: Sequence[Fault], outages: Sequence[Outage]) -> list[Recovery]:
    """Return how long each job that a fault had taken from its worker waited for its next call."""
    lives = list(lives)
    pids = {call.worker_id: call.pid for life in lives for call in life.calls}
    by_worker = {worker_id: [one for one in faults if one.pid == pid] for worker_id, pid in pids.items()}
    return [one for life in lives for one in _recoveries_of(life, by_worker, outages)]


def _recoveries_of(life: Life, faults: Mapping[str, Sequence[Fault]], outages: Sequence[Outage]) -> list[Recovery]:
    found: list[Recovery] = []
    had_at = life.ended_at
    for record in sorted(life.records, key=lambda one: one.at, reverse=True):
        call = _call_of(record, life.calls)
        cause_at = _cause_at(record, call, faults.get(record.worker_id, ()), outages)
        back_at = min((at for at in (_next_call_at(record, call, life.calls), had_at) if at is not None), default=None)
        if cause_at is not None and back_at is not None:
            what = f"{life.kind} {life.job_id} after {record.type} at attempt {record.attempt}"
            found.append(Recovery(back_at - _clock_starts_at(cause_at, back_at, outages), what))
        # By then this attempt's worker had the job, though perhaps it had not called its handler yet.
        had_at = record.at.timestamp() if cause_at is None else cause_at
    return found


def _call_of(record: Record, calls: Sequence[Call]) -> Call | None:
    """Return the call that *record* ended; one that comes later is what a frozen worker began when it was thawed."""
    named = [one for one in calls if (one.attempt, one.worker_id) == (record.attempt, record.worker_id)]
    return max((one for one in named if one.at <= record.at.timestamp()), key=lambda one: one.at, default=None)


def _next_call_at(record: Record, call: Call | None, calls: Sequence[Call]) -> float | None:
    if call is None:
        return next((one.at for one in calls if one.at > record.at.timestamp()), None)
    return next((one.at for one in calls if one.fence > call.fence), None)


def _cause_at(record: Record, call: Call | None, faults: Sequence[Fault], outages: Sequence[Outage]) -> float | None:
    """Return when the fault came that ended an attempt, or None if none did: it failed, or a beat was late."""
    if record.type not in (WORKER_LOST, LEASE_LAPSED):
        return None
    lost_at = record.at.timestamp()
    if call is None:
        return max((one.at for one in faults if one.is_final and one.at <= lost_at), default=None)
    own = [one.at for one in faults if call.at <= one.at <= lost_at]
    away = [one.began_at for one in outages if call.at <= one.ended_at and one.began_at <= lost_at]
    return min(own or away, default=None)


def _clock_starts_at(cause_at: float, back_at: float, outages: Sequence[Outage]) -> float:
    return max([cause_at, *(one.ended_at for one in outages if one.ended_at <= back_at)])
