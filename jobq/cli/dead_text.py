"""What dead letters look like: a line each in a list, a page for one, and a record for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from textwrap import indent
from typing import TYPE_CHECKING

import msgspec

from jobq.cli.database import Instance
from jobq.cli.durations import moment, words
from jobq.cli.output import printable
from jobq.cli.payloads import redacted_fields, shown_payload
from jobq.core.outcomes import RELEASES
from jobq.db.reports import DeadLetter, DeadLetterDetail

if TYPE_CHECKING:
    from rich.table import Table

WIDE_ENOUGH = 120
"""Columns of a terminal in which the list need not cut names."""

MAX_MESSAGE = 200
"""Characters of an error that stand in one line."""


class RecordedError(msgspec.Struct):
    """How one attempt ended, as it stands among a job's errors: it failed, or was handed back."""

    at: datetime
    attempt: int
    type: str = ""
    message: str = ""
    traceback: str = ""
    fingerprint: str = ""
    worker_id: str | None = None


def as_record(letter: DeadLetter) -> dict[str, object]:
    """Return a dead letter for `--json`: its fields, times in ISO 8601, the stored JSON as such."""
    record: dict[str, object] = msgspec.to_builtins(letter)
    for field in ("errors", "headers"):
        if isinstance(text := record.get(field), str):
            record[field] = json.loads(text)
    if isinstance(letter, DeadLetterDetail):
        record["payload"] = shown_payload(letter.payload, redacted_fields(letter.errors) or ())
    return record


def listing(letters: Sequence[DeadLetter], *, now: datetime, width: int | None) -> Table:
    """Return a table with a line for each dead letter, cut to *width* columns, or uncut if that is None."""
    from rich.table import Table
    from rich.text import Text

    narrow = width is not None and width < WIDE_ENOUGH
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("ID", justify="right", no_wrap=True)
    table.add_column("AGE", no_wrap=True)
    table.add_column("KIND", max_width=16 if narrow else None)  # the error says most: the others give way first
    table.add_column("QUEUE", max_width=8 if narrow else None)
    table.add_column("FINGERPRINT", no_wrap=True)
    table.add_column("ERROR")
    for letter in letters:
        error_type = letter.error_type.rpartition(".")[2]
        error = one_line(error_type, letter.error_message)
        cells = (str(letter.id), words(now - letter.died_at), letter.kind, letter.queue, letter.fingerprint, error)
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    return table


def page(letter: DeadLetterDetail, *, same_error: int, instance: Instance, now: datetime) -> str:
    """Return all that a person needs to decide about one dead letter, and the commands for either decision.

    *same_error* is how many dead letters have its fingerprint, itself included.
    """
    errors = msgspec.json.decode(letter.errors, type=list[RecordedError])
    sections = [
        f"{letter.kind} {letter.id}: dead letter of queue {letter.queue}, {letter.reason}",
        _columns(_facts(letter, errors, now)),
        f"payload\n{indent(_pretty(shown_payload(letter.payload, redacted_fields(letter.errors) or ())), '  ')}",
        *_tracebacks(errors),
        history(errors, now=now),
        _columns(_commands(letter, same_error, instance)),
    ]
    if letter.headers is not None:
        sections.insert(3, f"headers\n{indent(_pretty(json.loads(letter.headers)), '  ')}")
    return printable("\n\n".join(sections))


def history(errors: Sequence[RecordedError], *, now: datetime) -> str:
    """Tell a line each how the attempts ended that are on record."""
    told = (
        (f"attempt {error.attempt}", f"{moment(error.at, now=now)}  {one_line(error.type, error.message)}")
        for error in errors
    )
    return f"how attempts ended, oldest first\n{_columns(told)}"


def one_line(error_type: str, message: str) -> str:
    """Tell an error in one line: the type, and the first line of its message."""
    first = message.strip().partition("\n")[0]
    return printable(f"{error_type}: {first}"[:MAX_MESSAGE] if first else error_type)


def _facts(letter: DeadLetterDetail, errors: Sequence[RecordedError], now: datetime) -> Iterator[tuple[str, str]]:
    limit = "" if letter.max_attempts is None else f" of {letter.max_attempts}"
    yield (
        "attempts",
        f"{letter.attempt}{limit} ({letter.crashes} crashed), redriven {letter.redrives} times before",
    )
    yield "first failed", moment(letter.first_failed_at, now=now)
    yield "died", moment(letter.died_at, now=now)
    yield "enqueued", moment(letter.enqueued_at, now=now)
    yield "last due", moment(letter.run_at, now=now)
    if letter.claimed_at is not None:
        yield "last claimed", moment(letter.claimed_at, now=now)
    if errors and errors[-1].worker_id is not None:
        yield "last worker", errors[-1].worker_id
    yield "priority", str(letter.priority)
    if letter.idempotency_key is not None:
        yield "key", letter.idempotency_key
    yield "fingerprint", letter.fingerprint


def _tracebacks(errors: Sequence[RecordedError]) -> Iterator[str]:
    """Yield each different error once, whole, as it was the last time; the one that it died of first."""
    told: set[str] = set()
    for error in reversed([error for error in errors if error.type not in RELEASES]):
        if error.fingerprint not in told:
            title = "error" if not told else "an earlier, different error"
            text = error.traceback.rstrip() or one_line(error.type, error.message)
            yield f"{title}, attempt {error.attempt}\n{indent(text, '  ')}"
        told.add(error.fingerprint)


def _commands(letter: DeadLetterDetail, same_error: int, instance: Instance) -> Iterator[tuple[str, str]]:
    yield "redrive it", instance.command(f"dead redrive {letter.id}")
    yield "delete it", instance.command(f"dead delete {letter.id}")
    if same_error > 1:
        yield f"all {same_error:,} like it", instance.command(f"dead redrive --fingerprint {letter.fingerprint}")


def _columns(rows: Iterator[tuple[str, str]]) -> str:
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in listed)


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
