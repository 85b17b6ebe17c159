"""The events of recurring entries: what became of a tick that was not simply enqueued."""

from __future__ import annotations

from datetime import datetime

import msgspec


class RecurringChanged(msgspec.Struct, frozen=True):
    """These recurring entries are new, or ask for something else than before: this worker's code declares them so."""

    names: list[str]


class RecurringCaughtUp(msgspec.Struct, frozen=True):
    """No worker was there at a tick: it runs *late_s* seconds late, and stands for *covered* earlier ones."""

    name: str
    tick: datetime
    late_s: float
    covered: int


class RecurringMissed(msgspec.Struct, frozen=True):
    """So many ticks should have run and did not, the last of them *tick*: too late now, by the entry's `catch_up`."""

    name: str
    tick: datetime
    missed: int


class RecurringSkipped(msgspec.Struct, frozen=True):
    """So many ticks, up to *tick*, gave way to a run that is unfinished, as the entry's `overlap` says."""

    name: str
    tick: datetime
    skipped: int


class RecurringFailed(msgspec.Struct, frozen=True):
    """An entry cannot be declared or looked at, or its *tick* not be enqueued. It is tried again, the others go on."""

    name: str
    tick: datetime | None
    error: str


RecurringEvent = RecurringChanged | RecurringCaughtUp | RecurringMissed | RecurringSkipped | RecurringFailed
