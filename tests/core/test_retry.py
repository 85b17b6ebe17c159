"""Delays between attempts are finite, capped and never zero, for every attempt number and whatever is asked for."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.core.retry import MAX_DELAY_S, Backoff, asked_delay_s
from tests.core.strategies import FEW

DRAWS = st.floats(0, 1, exclude_max=True)
SECONDS = st.floats(1e-3, 86_400)


@given(st.integers(-5, 10**9), DRAWS, SECONDS, SECONDS)
@FEW
def test_a_backoff_lies_above_zero_and_within_its_cap(attempt: int, draw: float, one: float, other: float) -> None:
    """F39: full jitter, for any attempt, draw, base and cap: no overflow, no spin, no delay of decades."""
    base_s, cap_s = sorted((one, other))

    delay_s = Backoff(base_s, cap_s).delay_s(attempt, draw=draw)

    assert 0 < delay_s <= cap_s


def test_every_attempt_up_to_ten_thousand_has_a_delay() -> None:
    """F39: where a power of two overflows 32 bit, 64 bit, and a float, the delay is the cap."""
    delays = [Backoff().delay_s(attempt, draw=0.0) for attempt in range(1, 10_001)]

    assert delays[:12] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600]
    assert set(delays[12:]) == {3600}


@given(st.integers(1, 40), DRAWS, DRAWS)
@FEW
def test_the_bound_doubles_and_the_draw_spreads_below_it(attempt: int, one: float, other: float) -> None:
    """A larger draw is a shorter delay, and the same draw never waits less after a later attempt."""
    backoff = Backoff(1.0, 1000.0)
    low, high = sorted((one, other))

    assert backoff.delay_s(attempt, draw=low) >= backoff.delay_s(attempt, draw=high)
    assert backoff.delay_s(attempt + 1, draw=low) >= backoff.delay_s(attempt, draw=low)


@given(st.integers(0, 10**300) | st.floats(0, allow_infinity=False))
@FEW
def test_an_asked_delay_is_taken_up_to_thirty_days(delay: float) -> None:
    """F39: any finite number of seconds is one, and a far one is cut."""
    assert asked_delay_s(delay) == min(delay, MAX_DELAY_S)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        (0, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        (timedelta(minutes=2), 120.0),
        (timedelta(0), 0.0),
        (timedelta.max, 2_592_000.0),
        (2_592_001, 2_592_000.0),
        (10**300, 2_592_000.0),
    ],
    ids=repr,
)
def test_usable_delays(delay: object, seconds: float) -> None:
    """Seconds and timedeltas, at most 30 days."""
    assert asked_delay_s(delay) == seconds


@pytest.mark.parametrize(
    "delay",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        math.nan,
        math.inf,
        -math.inf,
        10**400,
        True,
        None,
        "60",
        b"60",
        Decimal(60),
        Fraction(1, 2),
        1j,
        [60],
        object(),
        timedelta,
    ],
    ids=lambda delay: f"{type(delay).__name__}",
)
def test_what_is_no_delay_is_refused_quietly(delay: object) -> None:
    """F39: negative, not finite, beyond a float and not a number: None, never an exception."""
    assert asked_delay_s(delay) is None
