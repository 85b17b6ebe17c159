"""The list of events is closed and documented, and what is told has a level and a sentence."""

from __future__ import annotations

import inspect
import logging
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
import pytest

from jobq.telemetry import events, measured, recurring
from jobq.telemetry.events import Detailed, Event, Told
from jobq.telemetry.log import describe, log_event, tells_every_attempt
from jobq.telemetry.measured import Measured

DOCS = Path(__file__).parents[2] / "docs" / "telemetry.md"

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
SAMPLES: dict[Any, object] = {int: 1, float: 1.0, str: "x", bool: True, UUID: UUID(int=1), datetime: NOON}


def sample(event: type[Any]) -> Any:
    """Return an event of this type with some values."""
    return event(*(_some(hint) for name, hint in get_type_hints(event).items() if name in event.__struct_fields__))


def _some(hint: Any) -> object:
    if isinstance(hint, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    if hint in SAMPLES:
        return SAMPLES[hint]
    return {"x": 1} if get_origin(hint) is dict else ["x"]


def test_the_list_is_closed() -> None:
    """Every record of the modules is on it, as told or as measured."""
    named = [
        one
        for module in (events, measured, recurring)
        for one in vars(module).values()
        if inspect.isclass(one) and one.__module__ == module.__name__
    ]

    assert set(get_args(Event)) == {one for one in named if issubclass(one, msgspec.Struct)}
    assert not set(get_args(Told)) & set(get_args(Measured))
    assert set(get_args(Detailed)) <= set(get_args(Told))


@pytest.mark.parametrize("event", get_args(Told), ids=lambda event: event.__name__)
def test_what_is_told_is_one_line_with_its_fields(event: type[Any], caplog: pytest.LogCaptureFixture) -> None:
    """At its level, with ids as fields and no payload; a field never goes by a name that the line itself has."""
    caplog.set_level(logging.DEBUG)

    log_event(sample(event))

    (record,) = caplog.records
    assert record.levelno == describe(sample(event))[0]
    assert record.__dict__["event"] == event.__name__
    assert record.__dict__["fields"].keys() == set(event.__struct_fields__)
    assert not set(event.__struct_fields__) & {"payload", "time", "level", "logger", "message", "event"}


@pytest.mark.parametrize("event", get_args(Measured), ids=lambda event: event.__name__)
def test_what_is_measured_is_no_line(event: type[Any], caplog: pytest.LogCaptureFixture) -> None:
    """There are hundreds a second."""
    caplog.set_level(logging.DEBUG)
    made: dict[Any, Any] = {
        measured.ClaimAnswered: measured.ClaimAnswered("mail", measured.WakeUp.POLL, 3, 0.1),
        measured.AttemptsSettled: measured.AttemptsSettled({}, 0.1),
        measured.LoopTurned: measured.LoopTurned(0.1),
    }

    log_event(made[event])

    assert caplog.records == []


@pytest.mark.parametrize(("level", "expected"), [(logging.DEBUG, True), (logging.INFO, False)])
def test_what_ends_well_is_told_at_debug_only(caplog: pytest.LogCaptureFixture, level: int, expected: bool) -> None:
    """At 80,000 jobs a second nobody pays for lines that nobody sees."""
    caplog.set_level(level)

    assert tells_every_attempt() is expected
    assert {describe(sample(event))[0] for event in get_args(Detailed)} == {logging.DEBUG}


def rows() -> list[str]:
    """Return the rows of the table of events."""
    lines = []
    for event in get_args(Event):
        is_told = event in get_args(Told)
        level = logging.getLevelName(describe(sample(event))[0]).lower() if is_told else "not logged"
        fields = ", ".join(f"`{field}`" for field in event.__struct_fields__)
        meaning = " ".join((event.__doc__ or "").partition("\n\n")[0].split()).replace("*", "`")
        lines.append(f"| `{event.__name__}` | {level} | {fields} | {meaning} |".replace("|  |", "| |"))
    return lines


def test_the_docs_list_every_event() -> None:
    """With its level, its fields and what it means, as the code says."""
    section = DOCS.read_text("utf-8").partition("<!-- events")[2].partition("<!-- /events -->")[0]

    assert section.splitlines()[3:] == rows()
