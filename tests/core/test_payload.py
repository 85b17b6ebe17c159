"""A payload is stored as it is, or refused with the path, the value and the remedy."""

from __future__ import annotations

import bisect
import dataclasses
import json
import math
import types
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobq.core.payload import MAX_DEPTH, MAX_PAYLOAD_BYTES, encode
from jobq.errors import PayloadError
from tests.core.strategies import DOCUMENTS, FEW, PLACES, Place, bury


class Percent(float):
    pass


class Label(str):
    __slots__ = ()


class Frozen(datetime):
    """As test tools that freeze the clock make them."""


@dataclasses.dataclass
class Box:
    content: object


class Crate(msgspec.Struct):
    content: object = None
    renamed: int = msgspec.field(default=0, name="Renamed")


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class BrokenZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        raise RuntimeError("no offset")

    tzname = dst = utcoffset  # type: ignore[assignment]


def refused(values: object) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        encode(values, kind="send")  # type: ignore[arg-type]  # some are no mappings
    return caught.value


def overflows(depth: int) -> bool:
    try:
        msgspec.to_builtins(nested(depth))
    except RecursionError:
        return True
    return False


def nested(depth: int, leaf: object = 1) -> dict[str, object]:
    """Return an object with *depth* levels of containers, itself the first."""
    value = leaf
    for _ in range(depth - 1):
        value = [value]
    return {"a": value}


@given(DOCUMENTS)
@example(nested(100))
@FEW
def test_a_json_object_is_stored_as_it_is(document: dict[str, object]) -> None:
    """What is JSON already comes back equal, from text that PostgreSQL takes."""
    encoded = encode(document, kind="send")

    assert json.loads(encoded) == document


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Decimal("1.50"), '"1.50"'),
        (datetime(2026, 1, 31, 9, tzinfo=UTC), '"2026-01-31T09:00:00Z"'),
        (datetime(2026, 1, 31, 9, tzinfo=timezone(timedelta(hours=2))), '"2026-01-31T09:00:00+02:00"'),
        (datetime(1900, 1, 1, tzinfo=timezone(timedelta(minutes=9, seconds=21))), '"1899-12-31T23:50:39Z"'),
        (timedelta(days=1), '"P1D"'),
        (b"ab", '"YWI="'),
        ((1, 2), "[1,2]"),
        ({3}, "[3]"),
        ({1: "a"}, '{"1":"a"}'),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        (Box([1]), '{"content":[1]}'),
        (Crate("x", 2), '{"content":"x","Renamed":2}'),
        (Percent(0.5), "0.5"),
        (Label("x"), '"x"'),
        (Frozen(2026, 1, 31, tzinfo=UTC), '"2026-01-31T00:00:00Z"'),
        ("\\u0000", r'"\\u0000"'),
    ],
    ids=repr,
)
def test_the_type_table_holds(value: object, stored: str) -> None:
    """F58: each type has the JSON form that the table in the module says."""
    assert encode({"v": value}, kind="send") == f'{{"v":{stored}}}'.encode()


UNSTORABLE: list[object] = [
    math.nan,
    math.inf,
    Percent("nan"),
    Decimal("NaN"),
    Decimal("sNaN"),
    2**63,
    -(2**63) - 1,
    10**5000,
    "a\0b",
    "\ud800",
    datetime(2026, 1, 31),
    datetime(2026, 1, 31, tzinfo=BrokenZone()),
    object(),
    Rude(),
    Box,
    {("a", "tuple"): 1},
]


@given(PLACES, st.integers(0, len(UNSTORABLE) - 1))
@FEW
def test_what_cannot_be_stored_is_refused_with_its_path(place: Place, which: int) -> None:
    """F55, F56, F58: a bad value is found wherever it is, and the message names kind, path and remedy."""
    document, path = bury(UNSTORABLE[which], place)

    error = refused(document)

    assert error.field == path
    assert str(error).startswith(f"payload of 'send': {path} = ")
    assert "; " in str(error)
    assert len(str(error)) < 500


def test_the_first_fault_of_the_document_is_told() -> None:
    """Of several, it is the one that a reader meets first; tuples are looked into like lists."""
    assert refused({"a": 1, "b": [1, math.inf], "c": math.nan}).field == "$.b[1]"
    assert refused({"a": (1, math.inf)}).field == "$.a[1]"


@pytest.mark.parametrize("key", ["a\0b", "\ud800"])
def test_keys_are_checked_like_values(key: str) -> None:
    """F55: a key that PostgreSQL cannot store is refused, and shown escaped."""
    error = refused({"a": [{key: 1}]})

    assert error.field == f"$.a[0][{key!r}]"
    assert error.value == key


@pytest.mark.parametrize("make", [Box, Crate])
def test_fields_of_classes_are_checked(make: type[Box] | type[Crate]) -> None:
    """F56: the path goes through dataclasses and Structs to the smallest part that is wrong."""
    assert refused({"a": [make(math.nan)]}).field == "$.a[0].content"
    assert refused({"a": make([1, object()])}).field == "$.a.content[1]"


@pytest.mark.parametrize("values", [None, 5, "text", [1], b"{}", Crate()])
def test_a_payload_is_an_object(values: object) -> None:
    """A top level that is no mapping is refused."""
    assert refused(values).field == "$"


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), True, 0.1, -0.0, 5e-324, 1.7976931348623157e308])
def test_numbers_up_to_the_limits_are_stored(number: float) -> None:
    """The largest integers of 64 bits and all finite floats pass unchanged."""
    assert json.loads(encode({"n": number}, kind="send")) == {"n": number}


@given(st.integers(MAX_DEPTH + 1, 2000))
@FEW
def test_deeper_nesting_is_refused(depth: int) -> None:
    """F58: it is our error at any depth, also where the libraries hit the end of the stack."""
    error = refused(nested(depth))

    assert "nested deeper than 100 levels" in str(error)
    assert error.field.startswith("$.a")
    assert len(str(error)) < 500


def test_the_end_of_the_stack_is_no_edge() -> None:
    """F58: where msgspec still encodes the part, but no longer the whole, it is the same refusal."""
    beyond = bisect.bisect(range(4_000), 0, key=overflows)

    for depth in range(beyond - 8, beyond + 8):
        assert "nested deeper than 100 levels" in str(refused(nested(depth)))


@pytest.mark.parametrize("length", [1, 2, 50])
def test_a_cycle_is_refused(length: int) -> None:
    """A payload that contains itself is refused with the path where it comes back to itself."""
    start: dict[str, object] = {}
    end: object = start
    for _ in range(length - 1):
        end = [end]
    start["a"] = {"b": end}

    error = refused({"root": start})

    assert error.field == "$.root.a.b" + "[0]" * (length - 1)
    assert "refers back to $.root" in str(error)


def test_the_same_part_twice_is_no_cycle() -> None:
    """A list that stands at two places of a payload is stored at both, and its error is told as its own."""
    part: list[object] = [1]

    assert encode({"a": part, "b": part}, kind="send") == b'{"a":[1],"b":[1]}'
    part.append(object())
    assert "has no JSON form" in str(refused({"a": part, "b": part}))


def test_the_size_limit_counts_encoded_bytes() -> None:
    """F59: 256 kB pass, one byte more is refused; what counts is UTF-8, not characters."""
    room = MAX_PAYLOAD_BYTES - len(b'{"a":""}')

    assert len(encode({"a": "x" * room}, kind="send")) == 262_144
    assert refused({"a": "x" * (room + 1)}).field == "$.a"
    assert refused({"a": "é" * (room // 2 + 1)}).field == "$.a"


def test_a_payload_that_is_too_large_names_its_largest_field() -> None:
    """F59: the message says which field to move elsewhere, and how large the whole is."""
    error = refused({"id": 1, "picture": "x" * 300_000, "note": "y" * 1000})

    assert error.field == "$.picture"
    assert "301,0" in str(error)
    assert "262,144" in str(error)


def test_the_message_shows_value_and_remedy() -> None:
    """The whole message, as a user reads it."""
    assert str(refused({"lines": [1, 2, 3, {"price": math.inf}]})) == (
        "payload of 'send': $.lines[3].price = inf is not a finite number, which JSON cannot hold;"
        " pass None, or leave the field out"
    )
