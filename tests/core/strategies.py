"""What the property tests of the core are fed with: JSON documents, and values of the type table."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import GenericAlias
from typing import Any, NamedTuple, NewType, TypedDict
from uuid import UUID

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

FEW = settings(max_examples=40, deadline=None)  # the whole folder is to run in 2 s, on a busy machine too

INT64 = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)

DOCUMENTS = st.dictionaries(
    TEXT,
    st.recursive(
        st.none() | st.booleans() | INT64 | FINITE | TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=8,
    ),
    max_size=4,
)
"""JSON objects that PostgreSQL stores."""


Place = list[str | int]
"""The way to a value in a document: names of fields and positions in lists."""

PLACES = st.tuples(NAMES, st.lists(NAMES | st.integers(0, 3), max_size=6)).map(lambda way: [way[0], *way[1]])


def bury(value: object, place: Place) -> tuple[dict[str, object], str]:
    """Return a document that is good but for *value* at *place*, and the path of *value* as messages write it."""
    path = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in place)
    document = value
    for step in reversed(place):
        if isinstance(step, str):
            document = {"A": "before", step: document, "Z": 1.5}
        else:
            document = [*range(step), document, None]
    assert isinstance(document, dict)
    return document, f"${path}"


# -- the type table: annotations, and values that fit them -------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: float


class Money(msgspec.Struct, frozen=True):
    amount: Decimal
    currency: str = "EUR"


@dataclasses.dataclass(frozen=True)
class Line:
    price: Money
    colour: Colour
    delivered_at: datetime | None = None


class Address(TypedDict):
    city: str
    since: date


OrderId = NewType("OrderId", int)

OFFSETS = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
# A day from either end, so that every offset leaves them within years 1 to 9999.
AWARE = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=OFFSETS)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
MONEY = st.builds(Money, DECIMALS, TEXT)
LINES = st.builds(Line, MONEY, st.sampled_from(Colour), st.none() | AWARE)

Typed = tuple[Any, object]
"""An annotation and a value of it."""

KEYS: Sequence[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXT),
    (int, INT64),
    (float, FINITE),
    (Decimal, DECIMALS),
    (datetime, AWARE.map(lambda at: at.astimezone(UTC))),  # of the offsets of keys, the seconds are lost
    (date, st.dates()),
    (time, st.times()),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (bytes, st.binary()),
    (OrderId, INT64),
]
LEAVES: Sequence[tuple[Any, st.SearchStrategy[Any]]] = [
    *KEYS,
    (bool, st.booleans()),
    (datetime, AWARE),
    (timedelta, st.timedeltas(timedelta(days=-99_999), timedelta(days=99_999))),
    (bytearray, st.binary().map(bytearray)),
    (Point, st.builds(Point, INT64, FINITE)),
    (Money, MONEY),
    (Line, LINES),
    (Address, st.fixed_dictionaries({"city": TEXT, "since": st.dates()})),
    (object, DOCUMENTS),
    (Any, DOCUMENTS),
]


def _pair(entry: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Typed]:
    annotation, values = entry
    return values.map(lambda value: (annotation, value))


def _set(entry: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Typed]:
    annotation, values = entry
    return st.sets(values, max_size=3).map(lambda value: (GenericAlias(set, (annotation,)), value))


def _containers(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        inner.map(lambda one: (GenericAlias(list, (one[0],)), [one[1]])),
        inner.map(lambda one: (GenericAlias(tuple, (one[0], int)), (one[1], 7))),
        inner.map(lambda one: (GenericAlias(tuple, (one[0], ...)), (one[1], one[1], one[1]))),
        inner.map(lambda one: (one[0] | None, one[1])),
        inner.map(lambda one: (one[0] | None, None)),
        st.tuples(st.sampled_from(KEYS).flatmap(_pair), inner).map(
            lambda two: (GenericAlias(dict, (two[0][0], two[1][0])), {two[0][1]: two[1][1]})
        ),
    )


TYPED = st.recursive(
    st.sampled_from(LEAVES).flatmap(_pair) | st.sampled_from(KEYS).flatmap(_set), _containers, max_leaves=3
)
"""Pairs of an annotation from the table and a value that a handler so annotated must get back."""
