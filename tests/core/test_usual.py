"""When a running attempt is slow for its kind, and which time-out fits what its kind takes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.core.histogram import LAST_BUCKET, bucket_of, percentile_ms
from jobq.core.usual import ENOUGH_RUNS, STEPS_S, judge_durations, propose_timeout_s
from tests.core.strategies import FEW

DURATIONS = st.dictionaries(st.integers(0, LAST_BUCKET), st.integers(1, 10_000), max_size=8)
TIMEOUTS = st.floats(0.001, 86_400)


def took(durations_s: dict[float, int]) -> dict[int, int]:
    """Return how many attempts took so many seconds, each an upper bound of its bucket, by bucket."""
    return {bucket_of(seconds * 1000): count for seconds, count in durations_s.items()}


@pytest.mark.parametrize(
    ("durations_s", "timeout_s", "usual_s", "slow_after_s"),
    [
        ({16.384: 100}, 300.0, 16.384, 81.92),  # five times
        ({0.032: 100}, 300.0, 0.032, 10.0),  # never within ten seconds
        ({0.032: 99, 16.384: 1}, 300.0, 0.032, 10.0),  # one in a hundred is not the rule
        ({0.032: 98, 16.384: 2}, 300.0, 16.384, 81.92),  # two are
        ({131.072: 100}, 300.0, 131.072, 270.0),  # about to be cut off
        ({16.384: 99}, 300.0, None, 150.0),  # too few
        ({}, 300.0, None, 150.0),
        ({}, 2.0, None, 10.0),  # its time-out names it
    ],
)
def test_an_attempt_is_slow_far_above_what_is_usual(
    durations_s: dict[float, int], timeout_s: float, usual_s: float | None, slow_after_s: float
) -> None:
    """After five times the 99th percentile, nine tenths of the time-out, or half of it where little is known."""
    found = judge_durations(took(durations_s), timeout_s)

    assert found.usual_s == (None if usual_s is None else pytest.approx(usual_s))
    assert found.slow_after_s == pytest.approx(slow_after_s)


@given(DURATIONS, TIMEOUTS)
@FEW
def test_no_fast_attempt_is_slow_and_none_is_cut_off_unnamed(durations: dict[int, int], timeout_s: float) -> None:
    """Whatever its kind took: at the earliest after ten seconds, at the latest at nine tenths of its time-out."""
    after_s = judge_durations(durations, timeout_s).slow_after_s

    assert 10.0 <= after_s <= max(10.0, 0.9 * timeout_s)


@given(st.integers(1, LAST_BUCKET), st.integers(ENOUGH_RUNS, 10_000))
@FEW
def test_an_attempt_as_slow_as_usual_is_not_slow(bucket: int, count: int) -> None:
    """Where its time-out is far away."""
    durations = {bucket: count}
    usual_ms = percentile_ms(durations, 0.99)
    assert usual_ms is not None

    assert usual_ms / 1000 < judge_durations(durations, 1e12).slow_after_s


@pytest.mark.parametrize(
    ("durations_s", "proposed_s"),
    [
        ({0.032: 100}, 1.0),
        ({1.024: 1000}, 5.0),
        ({0.032: 999, 16.384: 1}, 1.0),  # one in a thousand is let go
        ({0.032: 998, 16.384: 2}, 60.0),
        ({16.384: 99}, None),
        ({}, None),
        ({86_400.0: 100}, 86_400.0),
    ],
)
def test_a_time_out_is_proposed_from_what_attempts_took(
    durations_s: dict[float, int], proposed_s: float | None
) -> None:
    """Three times what 99.9 % do not exceed, as a person would write it, from a second to a day."""
    assert propose_timeout_s(took(durations_s)) == proposed_s


@given(DURATIONS)
@FEW
def test_a_proposal_is_one_of_the_steps(durations: dict[int, int]) -> None:
    """And there is one as soon as enough attempts are known."""
    proposed_s = propose_timeout_s(durations)

    assert (proposed_s is None) == (sum(durations.values()) < ENOUGH_RUNS)
    assert proposed_s is None or proposed_s in STEPS_S


def test_a_step_is_at_most_twice_the_one_before() -> None:
    """Rounding up does not make a time-out of another order."""
    assert list(STEPS_S) == sorted(STEPS_S)
    assert all(after <= 2 * before for before, after in pairwise(STEPS_S))
    assert (STEPS_S[0], STEPS_S[-1]) == (1, 86_400)
