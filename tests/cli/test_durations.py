"""Durations: what may be typed, and how ages read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from jobq.cli.durations import duration, duration_or_seconds, moment, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("0.5s", timedelta(milliseconds=500)),
        ("0", timedelta(0)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, expected: timedelta) -> None:
    """Several of them add up, and 0 needs no unit."""
    assert duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "7 d", "7x", "1e3s", "7dd", "d7", "٣s", "inf", "9" * 400 + "d"])
def test_anything_else_is_refused(text: str) -> None:
    """With a message, and no guess."""
    with pytest.raises(typer.BadParameter):
        duration(text)


def test_a_bare_number_is_refused_where_days_may_be_meant() -> None:
    """`dead delete --older-than 7` must not mean seven seconds."""
    with pytest.raises(typer.BadParameter, match="7 of what"):
        duration("7")


def test_a_bare_number_counts_seconds_where_seconds_are_usual() -> None:
    """`--grace 25` is what units and other tools have."""
    assert duration_or_seconds("25") == timedelta(seconds=25)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (172_799, "47 h"), (172_800, "2 d")],
)
def test_an_age_reads_in_one_unit(seconds: float, expected: str) -> None:
    """The largest that does not hide much."""
    assert words(timedelta(seconds=seconds)) == expected


def test_a_moment_is_in_utc_with_its_distance() -> None:
    """Two people in two zones read the same, and nobody has to subtract."""
    now = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)

    assert moment(now - timedelta(hours=5), now=now) == "2026-02-28 22:00:00+00:00 (5 h ago)"
    assert moment(now + timedelta(minutes=5), now=now) == "2026-03-01 03:05:00+00:00 (in 5 min)"
