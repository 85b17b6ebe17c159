"""Recurring entries: what one may say, checked, and what becomes of its ticks at a moment.

An entry is a row. The decisions about it are made here, from what its row says and from the database's clock, and
written by one statement, which demands that nobody has written since.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Literal, get_args

import msgspec

from jobq.core.cron import Schedule, read_fields, read_zone
from jobq.core.enqueue import make_row
from jobq.core.job import ClaimedJob, NewJob
from jobq.core.names import recurring_fault, shown
from jobq.errors import EnqueueError, RecurringError

CatchUp = Literal["last", "all", "none"]
Overlap = Literal["allow", "skip", "queue"]

AHEAD = timedelta(seconds=60)
"""How long before its tick a job is there. Not longer than a minute: so one tick at most of an entry lies ahead."""

PUNCTUAL = timedelta(seconds=60)
"""What is no later than this was not missed by anybody: workers look at least that often."""

DAILY = timedelta(days=1)
"""After this an entry is looked at in any case: the rules of its zone may have been changed meanwhile."""

HELD_LOOK = timedelta(seconds=1)
"""How often the end of the previous run is looked for, while a tick waits for it."""

DEFAULT_WITHIN_S = 3600.0
LONGEST_WITHIN_S = 366 * 86_400.0
MAX_CAP = 1000
COUNTED = 1000
"""How many owed ticks are looked at: from there on the number says no more to anybody."""


class EntryRow(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it is declared: validated, encoded, every default filled in."""

    name: str
    expression: str
    zone: str
    kind: str
    payload: str
    queue: str
    priority: int
    max_attempts: int | None
    catch_up: CatchUp
    catch_up_within_s: float
    catch_up_cap: int | None
    overlap: Overlap


def make_entry(
    name: str,
    expression: str,
    zone: str,
    job: NewJob,
    *,
    catch_up: CatchUp,
    within: timedelta | float | None,
    cap: int | None,
    overlap: Overlap,
    now: datetime,
) -> EntryRow:
    """Check an entry that enqueues *job* at each tick. Raises `RecurringError` with the value and the remedy.

    *within* is how late the last owed tick may be (None: an hour), and *cap* how many `all` catches up with at most;
    each of them goes with one way to catch up, and is refused with another.
    """
    if fault := recurring_fault(name):
        raise RecurringError(fault)
    where = f"recurring {name!r}"
    try:
        fields, checked_zone = read_fields(expression), read_zone(zone).key
    except RecurringError as error:
        raise RecurringError(f"{where}: {error}") from None
    if catch_up not in get_args(CatchUp):
        raise RecurringError(f"{where}: catch_up is {shown(catch_up)}; it is 'last', 'all' or 'none'")
    if overlap not in get_args(Overlap):
        raise RecurringError(f"{where}: overlap is {shown(overlap)}; it is 'allow', 'skip' or 'queue'")
    if catch_up == "all" and overlap != "allow":
        raise RecurringError(
            f"{where}: catch_up='all' enqueues several at once, which overlap={overlap!r} forbids: choose one of them"
        )
    if within is not None and catch_up != "last":
        raise RecurringError(f"{where}: catch_up_within goes with catch_up='last' only, and not with {catch_up!r}")
    if (cap is not None) is not (catch_up == "all"):
        raise RecurringError(
            f"{where}: catch_up is {catch_up!r} and catch_up_cap {shown(cap)}; 'all' needs a cap of 1 to {MAX_CAP}, and"
            " nothing else has one"
        )
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or not 1 <= cap <= MAX_CAP):
        raise RecurringError(f"{where}: catch_up_cap is {shown(cap)}; it is 1 to {MAX_CAP} ticks")
    if job.run_at is not None or job.idempotency_key is not None:
        raise RecurringError(f"{where}: its ticks say when a job runs and that it is one: state no run_at and no key")
    try:
        row = make_row(job, now=now)
    except EnqueueError as error:
        raise RecurringError(f"{where}: {error}") from error
    return EntryRow(
        name=name,
        expression=fields,
        zone=checked_zone,
        kind=row.kind,
        payload=row.payload,
        queue=row.queue,
        priority=row.priority,
        max_attempts=row.max_attempts,
        catch_up=catch_up,
        catch_up_within_s=_within_s(within, where),
        catch_up_cap=cap,
        overlap=overlap,
    )


def _within_s(within: timedelta | float | None, where: str) -> float:
    if within is None:
        return DEFAULT_WITHIN_S
    seconds = within.total_seconds() if isinstance(within, timedelta) else within
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 60 <= seconds <= LONGEST_WITHIN_S:
        raise RecurringError(
            f"{where}: catch_up_within is {shown(within)}; it is a minute to a year, in seconds or as a timedelta"
            " (catch_up='none' catches up with nothing)"
        )
    return float(seconds)


class DueEntry(msgspec.Struct, frozen=True):
    """An entry whose time to be looked at has come, in the order of the columns of `list_due_recurring.sql`.

    Every tick up to *decided_until* is decided. *held_tick* waits for the end of the previous run, which is unfinished
    if *is_busy*. *now* is the database's time, and *revision* changes with each write.
    """

    name: str
    revision: int
    expression: str
    zone: str
    catch_up: CatchUp
    catch_up_within_s: float
    catch_up_cap: int | None
    overlap: Overlap
    decided_until: datetime
    held_tick: datetime | None
    is_busy: bool
    now: datetime


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of an entry's ticks: *fire* those, let one wait for the end of the previous run (*held_tick*).

    *missed* ticks should have run and will not, the last of them at *missed_tick*; *covered* ones are caught up with
    by a later one, and *skipped* ones gave way to a run that is unfinished. *late_s* is how late the first owed one is.
    """

    fire: Sequence[datetime]
    held_tick: datetime | None
    decided_until: datetime
    next_tick: datetime
    look_at: datetime
    missed: int = 0
    missed_tick: datetime | None = None
    covered: int = 0
    skipped: int = 0
    late_s: float = 0.0


def decide(entry: DueEntry) -> Decision:
    """Say what becomes of an entry's ticks now. Raises `RecurringError` if its row says what cannot be."""
    schedule, now = Schedule(entry.expression, entry.zone), entry.now
    owed = _owed(schedule, entry)
    chosen = _chosen(entry, owed)
    lost = owed[len(chosen) :]
    is_covered = entry.catch_up == "last" and bool(chosen)
    decided_until = max([entry.decided_until, *owed[:1]])
    waiting = [*([] if entry.held_tick is None else [entry.held_tick]), *sorted(chosen)]
    if entry.overlap == "allow":
        ahead = list(takewhile(lambda tick: tick <= now + AHEAD, schedule.after(max(decided_until, now))))
        decided_until = max([decided_until, *ahead])
        fire, rest = waiting + ahead, []
    else:
        free = 0 if entry.is_busy else 1
        fire, rest = waiting[:free], waiting[free:]
    held = rest[:1] if entry.overlap == "queue" else []
    next_tick = next(schedule.after(max(decided_until, now)), None)
    if next_tick is None:
        raise RecurringError(f"expression {entry.expression!r} names a time that does not come any more")
    due_at = next_tick - AHEAD if entry.overlap == "allow" else next_tick
    return Decision(
        fire=fire,
        held_tick=held[0] if held else None,
        decided_until=decided_until,
        next_tick=next_tick,
        look_at=min(due_at, now + (HELD_LOOK if held else DAILY)),
        missed=0 if is_covered else len(lost),
        missed_tick=None if is_covered or not lost else lost[0],
        covered=len(lost) if is_covered else 0,
        skipped=len(rest) - len(held),
        late_s=(now - chosen[-1]).total_seconds() if chosen else 0.0,
    )


def _owed(schedule: Schedule, entry: DueEntry) -> list[datetime]:
    """Return the ticks that came since the last decision, the latest first; so many that the number says enough."""
    owed = []
    for tick in islice(schedule.until(entry.now), COUNTED):
        if tick <= entry.decided_until:
            break
        owed.append(tick)
    return owed


def _chosen(entry: DueEntry, owed: Sequence[datetime]) -> Sequence[datetime]:
    """Return those of the owed ticks that still run: the first of them, which are the latest."""
    match entry.catch_up:
        case "all":
            return owed[: entry.catch_up_cap]
        case "last":
            longest = max(PUNCTUAL, timedelta(seconds=entry.catch_up_within_s))
        case "none":
            longest = PUNCTUAL
    return [tick for tick in owed[:1] if entry.now - tick <= longest]


class _Headers(msgspec.Struct):
    tick: datetime


def tick_of(job: ClaimedJob) -> datetime | None:
    """Return the tick that *job* was enqueued for, in UTC. Its headers may hold anything."""
    if job.headers is None:
        return None
    try:
        return msgspec.json.decode(job.headers, type=_Headers).tick.astimezone(UTC)
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return None
