"""What an alert says, and the rules of telling: how many calls a minute, what is told together, when again.

An *incident* is a condition that lasts: jobs of one kind die, or a queue is behind. It is over when that was not seen
for the hook's quiet period. `db/incidents.py` finds and remembers incidents, `worker/teller.py` tells of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from jobq.core.job import JobId

T = TypeVar("T")

CALLS_A_MINUTE = 5
"""Of one hook in one worker: a bad deploy kills fifty kinds at once, and whoever is paged reads one line as well."""

WINDOW_S = 60.0

FIRST_PAUSE_S = 30.0
LONGEST_PAUSE_S = 600.0


class DeadAlert(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a kind have begun to die: what an `on_dead` hook is told. Never a payload."""

    kind: str
    letters: int
    """How many of the kind have died since *since*, as far as the look had come when this was told."""
    since: datetime
    """When the first of them died, by the database's clock, as is every time here."""
    last_at: datetime
    """When the latest of them died. The fields below are its own."""
    job_id: JobId
    queue: str
    reason: str
    error_type: str
    error_message: str
    """The first line, of at most 200 characters; what the kind redacts is covered."""
    also: tuple[str, ...] = ()
    """Other kinds that have begun to die, told with this one because there are too many to tell each by itself."""


class BacklogAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A queue has fallen behind: what an `on_backlog` hook is told."""

    queue: str
    oldest_ready_s: float
    """For how many seconds the oldest ready job had been ready, when it was last looked at."""
    ready: int
    """How many jobs were ready, counted up to 10,000."""
    workers: int
    """How many live workers serve the queue; with 0 nobody does."""
    since: datetime
    """When a worker first saw the backlog, by the database's clock."""
    last_at: datetime
    """When the figures above were read."""
    also: tuple[str, ...] = ()
    """Other queues that have fallen behind, told with this one because there are too many to tell each by itself."""


class Allowance:
    """How many calls there may be, at most `CALLS_A_MINUTE` in any minute. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._calls: list[float] = []

    def left(self, now: float) -> int:
        """Return how many calls may be made."""
        self._calls = [at for at in self._calls if at > now - WINDOW_S]
        return CALLS_A_MINUTE - len(self._calls)

    def spend(self, calls: int, now: float) -> None:
        """Note that so many calls are made."""
        self._calls += [now] * calls


def divide(due: Sequence[T], calls: int) -> list[Sequence[T]]:
    """Divide what is *due* among so many *calls*: each by itself as long as they last, the rest in the last one."""
    alone = len(due) if len(due) <= calls else calls - 1
    groups: list[Sequence[T]] = [[one] for one in due[:alone]]
    return [*groups, due[alone:]] if alone < len(due) else groups


def pause_s(tries: int) -> float:
    """Return how long to wait after so many calls have failed: doubled each time, ten minutes at most."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10))
