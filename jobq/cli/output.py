"""What commands print: results on stdout, everything about them on stderr; and text that is safe to show."""

from __future__ import annotations

import json
import re
import shutil
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OUTER = ("__main__.", "jobq.cli.", "typer.", "click.", "importlib.", "asyncio.", "uvloop.")
_WIDE = 1000  # columns, more than any line of a table has


def say(text: str) -> None:
    """Tell a person something that is no result, on stderr."""
    typer.echo(text, err=True)


def print_json(value: object) -> None:
    """Print *value* for a program."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def terminal_width() -> int | None:
    """Return how many columns stdout shows, or None if it is no terminal: a pipe or a file gets whole lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(table: Table) -> None:
    """Print a table: fitted to the terminal, or uncut and without colour."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    wide = Console(width=_WIDE, no_color=True, highlight=False, force_terminal=False)
    with wide.capture() as capture:
        wide.print(table)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def printable(text: str) -> str:
    """Return *text* with everything escaped that could move the cursor or reorder what is shown."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def inner_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of *error* without the outermost frames, which are alike for every error of a command."""
    at = error.__traceback__
    while at is not None and f"{at.tb_frame.f_globals.get('__name__')}.".startswith(_OUTER):
        at = at.tb_next
    return at
