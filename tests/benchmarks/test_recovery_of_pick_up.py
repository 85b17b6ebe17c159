"""When a load counts as recovered after a held snapshot (`benchmarks/pinned.py`)."""

from __future__ import annotations

import pytest

from benchmarks.pick_up import Wait
from benchmarks.pinned import recovered_after_s

RELEASED_AT = 1000.0


def waits(ms_by_second: list[float]) -> list[Wait]:
    """Two waits a second from the release on, and a bad one before."""
    after = [Wait(RELEASED_AT + second + part, ms) for second, ms in enumerate(ms_by_second) for part in (0.2, 0.7)]
    return [Wait(RELEASED_AT - 0.5, 9999.0), *after]


@pytest.mark.parametrize(
    ("ms_by_second", "expected"),
    [
        ([10.0] * 8, 0.0),
        ([90.0, 90.0, *[10.0] * 6], 2.0),
        ([90.0, 10.0, 10.0, 90.0, *[10.0] * 5], 4.0),
        ([*[10.0] * 5, 90.0, 90.0, 90.0], 0.0),
        ([90.0, 90.0, 90.0, 90.0, *[10.0] * 4], 8.0),
    ],
)
def test_it_takes_five_good_seconds_in_a_row(ms_by_second: list[float], expected: float) -> None:
    """One good second is chance, a bad one later another matter; never is all that was watched."""
    watched_s = float(len(ms_by_second))

    found = recovered_after_s(waits(ms_by_second), RELEASED_AT, 20.0, watched_s=watched_s)

    assert found == expected
