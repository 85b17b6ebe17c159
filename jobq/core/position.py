"""Where the claims of one loop start in each lane, so that they do not walk again what was claimed before.

The index entries of claimed jobs stay until vacuum removes them, and a snapshot that somebody holds keeps vacuum from
it: a claim that starts at the front then walks them all. One that starts behind the last claimed job meets none.

No job may be left behind the position:

- nothing is put there on purpose: whatever makes a job ready gives it a `run_at` of the database's clock or later;
- a claim starts a second before the database's clock or earlier, which covers commits that come that late;
- a look behind, once a second, finds what came later still or was locked when it was passed: then the next claim starts
  where the look did. It begins at the front, or a little before the marks while a look at everything is dear.

A loop that sleeps forgets its position while a walk from the front is cheap, and nobody has to look behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from jobq.core.job import PRIORITIES, ClaimedJob, JobId

LOOK_EVERY_S = 1.0

LOOK_SHARE = 0.05
"""The part of its time that a loop may spend on looking behind, however long one look takes."""

RECENT_S = 20.0
"""How far before its marks a look begins between two dear ones at everything: few transactions last longer."""

CHEAP_S = 0.005
"""A walk from the front that takes no longer does not deserve a statement that spares it: some 30,000 dead entries."""


class Mark(NamedTuple):
    """A place in the order of one lane."""

    run_at: datetime
    id: JobId


BEGINNING = Mark(datetime.min.replace(tzinfo=UTC), JobId(0))
FRONT = [BEGINNING] * len(PRIORITIES)
"""Marks, one a lane, that pass over nothing."""


class Position:
    """The position of one claim loop. Times are seconds of a monotonic clock, marks are of the database's."""

    def __init__(self) -> None:
        self._marks = FRONT
        self._asked = FRONT
        self._seen = BEGINNING
        self._seen_before = BEGINNING
        self._walk_s = 0.0
        self._look_at = 0.0
        self._look_at_all_at = 0.0

    @property
    def marks(self) -> list[Mark]:
        """Where the lanes start: everything before was claimed, or passed over."""
        return self._marks

    def forget(self) -> None:
        """Let the next claim start at the front. One that is under way changes nothing of it."""
        self._go_back(FRONT)

    def _go_back(self, marks: Sequence[Mark]) -> None:
        self._marks = list(marks)
        self._seen = BEGINNING

    def before_claim(self) -> list[Mark]:
        """Return the marks for a claim that is sent now."""
        self._asked = self._marks
        self._seen_before = self._seen
        return self._asked

    def after_claim(self, claimed: Sequence[ClaimedJob], *, limit: int, took_s: float) -> None:
        """Move on, after the claim that was sent last took *claimed*, in order, where it could have taken *limit*."""
        if self._marks is not self._asked:
            return
        if not claimed and self._marks[0] == BEGINNING:
            self._walk_s = took_s
        last = {job.priority: job for job in claimed}
        marks = list(self._marks)
        for priority, job in last.items():
            marks[priority] = Mark(job.run_at, job.id)
        if len(claimed) < limit:
            # Everything that was ready has been taken, in every lane.
            marks = [max(*marks, self._seen_before)] * len(marks)
        self._marks = marks

    def next_look(self, *, is_asleep: bool, now: float) -> list[Mark] | None:
        """Return where a look behind begins that is due now, by lane, or None.

        Forgets the position of a sleeping loop instead, if that is cheap.
        """
        if now < self._look_at:
            return None
        if is_asleep and self._walk_s <= CHEAP_S:
            self.forget()
            return None
        if now >= self._look_at_all_at:
            return FRONT
        return [_earlier(mark) for mark in self._marks]

    def after_look(self, nothing_until: datetime | None, *, since: Sequence[Mark], took_s: float, now: float) -> None:
        """Note that nothing was behind, from *since* on, at a time of the database; or, by None, that something was."""
        next_at = now + max(LOOK_EVERY_S, took_s / LOOK_SHARE)
        if since is FRONT:
            self._walk_s = took_s
            self._look_at_all_at = next_at
            self._look_at = now + LOOK_EVERY_S
        else:
            self._look_at = next_at
        if nothing_until is None:
            self._go_back(since)
        else:
            self._seen = Mark(nothing_until, JobId(0))


def _earlier(mark: Mark) -> Mark:
    back = timedelta(seconds=RECENT_S)
    return Mark(max(mark.run_at, BEGINNING.run_at + back) - back, JobId(0))
