"""The rules of telling: how many calls a minute, what is told together, and when again after a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.core.alert import CALLS_A_MINUTE, Allowance, divide, pause_s


@pytest.mark.parametrize(
    ("due", "calls", "expected"),
    [
        ("", 5, []),
        ("a", 1, ["a"]),
        ("abc", 5, ["a", "b", "c"]),
        ("abcde", 5, ["a", "b", "c", "d", "e"]),
        ("abcdefgh", 5, ["a", "b", "c", "d", "efgh"]),
        ("abc", 1, ["abc"]),
    ],
)
def test_each_is_told_by_itself_as_long_as_the_calls_last(due: str, calls: int, expected: list[str]) -> None:
    """The last call is for the rest."""
    assert ["".join(group) for group in divide(list(due), calls)] == expected


@given(st.lists(st.integers()), st.integers(1, 10))
def test_nothing_is_left_out_and_no_call_is_for_nothing(due: list[int], calls: int) -> None:
    """In their order, in no more calls than there may be."""
    groups = divide(due, calls)

    assert [one for group in groups for one in group] == due
    assert all(groups)
    assert len(groups) <= calls


def test_calls_are_bounded_in_any_minute() -> None:
    """Not in each minute of the clock: what was made half a minute ago still counts."""
    allowance = Allowance()
    allowance.spend(CALLS_A_MINUTE - 1, 100.0)
    allowance.spend(1, 130.0)

    assert allowance.left(159.0) == 0
    assert allowance.left(160.0) == CALLS_A_MINUTE - 1
    assert allowance.left(190.0) == CALLS_A_MINUTE


def test_the_pause_after_a_failure_doubles_up_to_ten_minutes() -> None:
    """However often it has failed."""
    assert [pause_s(tries) for tries in (1, 2, 3, 4, 5, 6, 7, 10_000)] == [30, 60, 120, 240, 480, 600, 600, 600]
