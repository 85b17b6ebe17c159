"""Durations by bucket: what a percentile of them is, and how far it can be off."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.core.histogram import LAST_BUCKET, bucket_of, percentile_ms, upper_bound_ms
from tests.core.strategies import FEW

DAY_MS = 86_400_000.0
DURATIONS = st.floats(0, 1.5 * DAY_MS)


@pytest.mark.parametrize(
    ("milliseconds", "bucket"),
    [
        (0, 0),
        (0.999, 0),
        (1, 1),
        (1.1, 2),
        (2, 5),
        (2.1, 6),
        (4, 9),
        (1000, 41),
        (86_400_000, 107),
        (1e12, LAST_BUCKET),
    ],
)
def test_four_buckets_double_the_duration(milliseconds: float, bucket: int) -> None:
    """From one millisecond on; below is bucket 0, and the last one holds all that is longer."""
    assert bucket_of(milliseconds) == bucket


@given(DURATIONS)
@FEW
def test_a_duration_lies_in_its_bucket(milliseconds: float) -> None:
    """Not above its upper bound, and above that of the bucket before, within the precision of a float."""
    bucket = bucket_of(milliseconds)

    assert 0 <= bucket <= LAST_BUCKET
    assert milliseconds <= upper_bound_ms(bucket) * (1 + 1e-12)
    if bucket > 1:
        assert milliseconds > upper_bound_ms(bucket - 1) * (1 - 1e-12)


@given(DURATIONS, DURATIONS)
@FEW
def test_longer_is_never_in_an_earlier_bucket(first: float, second: float) -> None:
    """So percentiles of sums of histograms are those of all attempts."""
    assert (bucket_of(min(first, second))) <= bucket_of(max(first, second))


def test_the_last_bucket_is_above_the_longest_time_out() -> None:
    """Which is a day."""
    assert upper_bound_ms(LAST_BUCKET) > 1.5 * DAY_MS
    assert bucket_of(1e300) == LAST_BUCKET


@given(st.lists(DURATIONS, min_size=1, max_size=30), st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
@FEW
def test_a_percentile_is_at_most_a_fifth_above_the_exact_one(durations: list[float], share: float) -> None:
    """It is the upper bound of the bucket that the exact one lies in."""
    exact = sorted(durations)[math.ceil(share * len(durations)) - 1]

    found = percentile_ms(Counter(map(bucket_of, durations)), share)

    assert found is not None
    assert found == upper_bound_ms(bucket_of(exact))
    assert exact * (1 - 1e-9) <= found <= max(1.0, exact * 1.19)


def test_no_attempts_have_no_percentile() -> None:
    """Neither an empty histogram nor one of zeros."""
    assert percentile_ms({}, 0.5) is None
    assert percentile_ms({3: 0}, 0.5) is None
