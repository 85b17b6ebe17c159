"""Counts of attempts: each attempt once, and the same however they were batched."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from jobq.core.counts import CountsByKind, EndCounts, count, merge
from jobq.core.failure import plain
from jobq.core.histogram import bucket_of
from jobq.core.job import ClaimedJob, JobId
from jobq.core.outcomes import DONE, Dead, Outcome, Released, Retry

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILURE = plain("no")
OUTCOMES: list[Outcome] = [
    DONE, Retry(FAILURE, 1.0), Dead(FAILURE, "x"), Dead(FAILURE, "x", started=False), Released(3.0)
]  # fmt: skip

ENDS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(OUTCOMES), st.integers(min_value=0, max_value=10**8))
)


def claimed(kind: str) -> ClaimedJob:
    """A job of this kind."""
    return ClaimedJob(JobId(1), "mail", kind, 5, NOW, "{}", 1, 0, None, 1, NOW, None)


def counted(ends: list[tuple[str, Outcome, int]]) -> CountsByKind:
    """Count these attempts."""
    counts: CountsByKind = {}
    for kind, outcome, run_ms in ends:
        count(counts, claimed(kind), outcome, run_ms)
    return counts


def test_each_outcome_is_counted_as_what_it_is() -> None:
    """Only what ran to an end has a duration."""
    counts = counted([("a", outcome, 7) for outcome in OUTCOMES])

    assert counts == {
        ("mail", "a"): EndCounts(done=1, retried=1, dead=2, released=1, run_ms=21, durations={bucket_of(7): 3})
    }


@given(ENDS, ENDS)
def test_batches_add_up(one: list[tuple[str, Outcome, int]], other: list[tuple[str, Outcome, int]]) -> None:
    """Whatever their border, and without changing what is added."""
    more = counted(other)
    total = counted(one)

    merge(total, more)

    assert total == counted(one + other)
    assert more == counted(other)
