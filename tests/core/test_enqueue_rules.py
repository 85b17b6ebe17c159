"""Every check of an enqueue, before any SQL: what passes becomes a row, what does not says field, value and remedy."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.core import enqueue
from jobq.core.enqueue import FARTHEST, answer_seconds, chunks, make_row
from jobq.core.job import JobRow, NewJob
from jobq.errors import EnqueueError, UnknownKindError
from tests.core.strategies import FEW, OFFSETS

NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)
PLAIN = NewJob(kind="send", payload=b'{"n": 1}', home="mail")


def row_of(**fields: Any) -> JobRow:
    return make_row(msgspec.structs.replace(PLAIN, **fields), now=NOW)


def refused(**fields: Any) -> EnqueueError:
    with pytest.raises(EnqueueError) as caught:
        row_of(**fields)
    return caught.value


def test_what_is_not_stated_is_filled_in() -> None:
    """The handler's queue, priority 5, now, the handler's limit."""
    row = row_of()

    assert row == JobRow("send", '{"n": 1}', "mail", None, None, 5, None, None)
    assert row.immediate


def test_what_is_stated_goes_first() -> None:
    """Every field of it."""
    row = row_of(queue="slow", priority=0, idempotency_key="order:7", max_attempts=3, run_at=timedelta(seconds=90))

    assert row == JobRow("send", '{"n": 1}', "slow", None, 90.0, 0, "order:7", 3, immediate=False)


def test_a_kind_without_a_home_needs_a_queue() -> None:
    """A name that is not registered here says nothing about its queue."""
    with pytest.raises(UnknownKindError, match=r"pass queue='\.\.\.'"):
        row_of(home=None)

    assert row_of(home=None, queue="mail").queue == "mail"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("kind", ["", "a b", "x" * 101, "a\0", 7]),
        ("queue", ["", "a b", "x" * 61, "a\n", 7]),
        ("priority", [-1, 10, 5.0, True, "5", math.nan, 10**30]),
        ("idempotency_key", ["", "a\0", "x" * 513, 7, "\ud800"]),
        ("max_attempts", [0, -1, 2**31, 1.0, True, "3"]),
        ("run_at", ["2024-01-01", 1709208000, math.inf, object(), True]),
    ],
)
def test_a_refusal_names_field_and_value(field: str, values: list[object]) -> None:
    """So that the caller can find it in code; the message is for people."""
    for value in values:
        error = refused(**{field: value})
        assert error.field == field
        assert error.value is value
        assert len(str(error)) > 20
        str(error).encode()


@given(st.datetimes(datetime(2000, 1, 1), datetime(2033, 1, 1), timezones=OFFSETS))
@FEW
def test_a_time_with_a_zone_is_the_same_moment_in_utc(run_at: datetime) -> None:
    """In any offset; the past is passed on, and the database makes it now."""
    row = row_of(run_at=run_at)

    assert row.run_at is not None
    assert row.run_at.endswith("+00:00")
    assert datetime.fromisoformat(row.run_at) == run_at
    assert row.delay_s is None
    assert row.immediate == (run_at <= NOW)


@given(st.timedeltas(-FARTHEST, FARTHEST))
@FEW
def test_a_delay_counts_from_the_database_s_now(delay: timedelta) -> None:
    """It is never turned into a time by this machine's clock."""
    row = row_of(run_at=delay)

    assert (row.run_at, row.delay_s) == (None, delay.total_seconds())
    assert row.immediate == (delay <= timedelta(0))


def test_a_time_of_a_clock_change_is_one_moment() -> None:
    """The hour that comes twice is told apart by `fold`, as Python defines it."""
    berlin = ZoneInfo("Europe/Berlin")

    first = row_of(run_at=datetime(2024, 10, 27, 2, 30, tzinfo=berlin))
    second = row_of(run_at=datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=1))

    assert (first.run_at, second.run_at) == ("2024-10-27T00:30:00+00:00", "2024-10-27T01:30:00+00:00")


def test_ten_years_is_the_farthest() -> None:
    """Beyond it is a mistake, such as milliseconds taken for seconds; the very end passes."""
    assert row_of(run_at=FARTHEST).delay_s == FARTHEST.total_seconds()
    assert row_of(run_at=NOW + FARTHEST).run_at is not None
    for run_at in (
        FARTHEST + timedelta.resolution,
        NOW + FARTHEST + timedelta.resolution,
        timedelta.max,
        timedelta.min,
    ):
        assert "ten years away" in str(refused(run_at=run_at))


def test_a_time_without_a_zone_is_refused() -> None:
    """Nobody knows when that is; a zone that has no offset is none."""

    class Vague(tzinfo):
        def utcoffset(self, when: datetime | None) -> None: ...

        tzname = dst = utcoffset

    for run_at in (datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=Vague())):
        assert "has no time zone" in str(refused(run_at=run_at))


@pytest.mark.parametrize(
    "run_at",
    [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    ],
    ids=["before year 1", "after year 9999"],
)
def test_a_time_that_utc_cannot_name_is_refused(run_at: datetime) -> None:
    """With a typed error, not with the overflow."""
    assert "is no possible time" in str(refused(run_at=run_at)) or "ten years" in str(refused(run_at=run_at))


@pytest.mark.parametrize(
    ("given_for", "seconds"),
    [(0, 0.0), (60, 60.0), (0.5, 0.5), (timedelta(days=1), 86_400.0), (timedelta(days=366), 31_622_400.0)],
    ids=repr,
)
def test_a_key_answers_for_up_to_a_year(given_for: Any, seconds: float) -> None:
    """Given as seconds or as a timedelta."""
    assert answer_seconds(given_for) == seconds


@pytest.mark.parametrize(
    "given_for",
    [-1, timedelta(-1), math.nan, math.inf, timedelta(days=367), 10**400, True, None, "60", Decimal(60)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_time_for_a_key_is_refused(given_for: Any) -> None:
    """With the field and the value."""
    with pytest.raises(EnqueueError, match=r"pass 0 seconds to a year") as caught:
        answer_seconds(given_for)

    assert caught.value.field == "idempotency_for"
    assert caught.value.value is given_for


@given(st.lists(st.integers(0, 30), max_size=30))
@FEW
def test_chunks_cover_all_rows_in_order_and_are_bounded(sizes: list[int]) -> None:
    """Each row is in one piece; a piece is over the bytes only if it is a single row."""
    rows = [JobRow("send", "x" * size, "mail", None, None, 5, None, None) for size in sizes]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enqueue, "CHUNK_JOBS", 4)
        patch.setattr(enqueue, "CHUNK_BYTES", 40)
        pieces = [rows[piece] for piece in chunks(rows)]

    assert [row for piece in pieces for row in piece] == rows
    for piece in pieces:
        assert 1 <= len(piece) <= 4
        assert len(piece) == 1 or sum(len(row.payload) for row in piece) <= 40


def test_a_hundred_thousand_rows_are_ten_chunks() -> None:
    """As many as fit into a statement go into it."""
    rows = [JobRow("send", "{}", "mail", None, None, 5, None, None)] * 100_000

    assert [piece.stop - piece.start for piece in chunks(rows)] == [10_000] * 10
