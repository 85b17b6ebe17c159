"""What became of attempts, added up by queue and kind: how a batch of outcomes is told, and how counts are kept."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jobq.core.histogram import bucket_of
from jobq.core.job import ClaimedJob
from jobq.core.outcomes import Dead, Done, Outcome, Released, Retry


class EndCounts(msgspec.Struct):
    """How attempts of one kind ended. *durations* counts those whose handler ran by bucket of `core/histogram.py`.

    *run_ms* is how long those handlers ran, all together. What was released ran to no end, and has no duration.
    """

    done: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    run_ms: int = 0
    durations: dict[int, int] = msgspec.field(default_factory=dict)

    def add(self, outcome: Outcome, run_ms: int) -> None:
        """Count one attempt."""
        match outcome:
            case Done():
                self.done += 1
            case Released():
                self.released += 1
                return
            case Retry():
                self.retried += 1
            case Dead():
                self.dead += 1
                if not outcome.started:
                    return  # no handler ran, so there is no duration
        self.run_ms += run_ms
        bucket = bucket_of(run_ms)
        self.durations[bucket] = self.durations.get(bucket, 0) + 1

    def merge(self, other: EndCounts) -> None:
        """Add what *other* has counted."""
        self.done += other.done
        self.retried += other.retried
        self.dead += other.dead
        self.released += other.released
        self.run_ms += other.run_ms
        for bucket, number in other.durations.items():
            self.durations[bucket] = self.durations.get(bucket, 0) + number


CountsByKind = dict[tuple[str, str], EndCounts]
"""By queue and kind."""


def count(into: CountsByKind, claimed: ClaimedJob, outcome: Outcome, run_ms: int) -> None:
    """Count how one attempt ended."""
    counts = into.get((claimed.queue, claimed.kind))
    if counts is None:
        counts = into[claimed.queue, claimed.kind] = EndCounts()
    counts.add(outcome, run_ms)


def merge(into: CountsByKind, more: Mapping[tuple[str, str], EndCounts]) -> None:
    """Add *more* counts to those that are kept."""
    for key, counts in more.items():
        into.setdefault(key, EndCounts()).merge(counts)
