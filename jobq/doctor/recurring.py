"""Rules about recurring entries: what should have run and did not, what cannot, and what nobody may want any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobq.db.recurring import EntryNow
from jobq.doctor.finding import Finding, Severity, first_few

LONG_PAUSE_S = 86_400.0


def check_missed(entries: Sequence[EntryNow]) -> Iterator[Finding]:
    """A run that never began raises no error anywhere."""
    if missed := [one for one in entries if one.should_have_run_at is not None]:
        yield Finding(
            severity=Severity.HURTS,
            code="recurring-missed",
            title="these recurring entries should have run and did not: "
            + first_few(f"{one.name} at {one.should_have_run_at:%Y-%m-%d %H:%M} UTC ({one.state})" for one in missed),
            detail="no worker was there at the tick, or none was so in time, or nobody starts the job",
            remedy="jobq cron list says which; start a worker, and `jobq cron run NAME` makes up for a run",
        )
    if unread := [one.name for one in entries if one.state == "overdue" and one.should_have_run_at is None]:
        yield Finding(
            severity=Severity.HURTS,
            code="recurring-missed",
            title=f"no worker has looked at these recurring entries since they were added or changed: "
            f"{first_few(unread)}",
            detail="nobody knows when they are due, and none of their ticks is enqueued",
            remedy="start a worker: any of this schema will do",
        )


def check_faults(entries: Sequence[EntryNow]) -> Iterator[Finding]:
    """What was written in SQL is read by the first worker that looks."""
    for one in entries:
        if one.fault is not None:
            yield Finding(
                severity=Severity.HURTS,
                code="recurring-faulty",
                title=f"recurring {one.name} cannot be enqueued",
                detail=one.fault,
                remedy="correct the entry, where it was declared or added; it is tried again all the while",
            )


def check_forsaken(entries: Sequence[EntryNow]) -> Iterator[Finding]:
    """An entry outlives its code, because a rolling deploy must not remove it."""
    if forsaken := [one.name for one in entries if one.is_forsaken]:
        yield Finding(
            severity=Severity.LOOK,
            code="recurring-forsaken",
            title=f"no live worker's code declares these recurring entries any more: {first_few(forsaken)}",
            detail="they go on all the same, because a worker of another release may still want them",
            remedy="jobq cron remove NAME, if it is not wanted any more",
        )


def check_pauses(entries: Sequence[EntryNow]) -> Iterator[Finding]:
    """A pause is forgotten easily, and says nothing."""
    for one in entries:
        if one.paused_at is not None and (one.now - one.paused_at).total_seconds() > LONG_PAUSE_S:
            yield Finding(
                severity=Severity.LOOK,
                code="recurring-paused",
                title=f"recurring {one.name} is paused since {one.paused_at:%Y-%m-%d %H:%M} UTC",
                detail=f"by {one.paused_by}: {one.paused_why}",
                remedy=f"jobq cron resume {one.name}, if that is over",
            )
