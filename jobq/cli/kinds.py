"""`jobq kinds app:queue`: the rules of each kind, and what a duplicate run of it does. Needs no database."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from jobq.cli.output import AsJson, print_json, print_table, printable
from jobq.cli.target import as_queue, load, read_target
from jobq.cli.worker_options import AppDir, AppQueue

if TYPE_CHECKING:
    from rich.table import Table

    from jobq.registration import Handler

EXAMPLES = "Example: jobq kinds app:queue"

MISSING = "NOT STATED"
"""What stands where a handler does not say what a duplicate run does."""


class KindRules(msgspec.Struct, frozen=True, kw_only=True):
    """One kind as it is registered. *on_duplicate* is None if it is not stated."""

    kind: str
    queue: str
    executor: str
    max_attempts: int
    max_crashes: int
    timeout_s: float
    retry_on: list[str]
    on_duplicate: str | None
    function: str


def kinds(
    target: AppQueue,
    app_dir: AppDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Show your kinds, their rules, and what a duplicate run does.

    Every job runs twice one day: a worker may die after the effect and before it is recorded. What that does is what
    the handler states as `on_duplicate`; one that does not is marked. Needs no database.
    """
    sys.path.insert(0, str(app_dir))  # it stays, for what an async factory imports when it runs
    wanted = read_target(target)
    found = load(wanted, directory=app_dir)
    queue = asyncio.run(as_queue(wanted, found))
    rules = [_rules(handler) for _, handler in sorted(queue.handlers.items())]
    if as_json:
        print_json({"kinds": [msgspec.to_builtins(one) for one in rules]})
        return
    if not rules:
        typer.echo(f"{target} has no handlers: import the modules that register them where the queue is made.")
        return
    print_table(_registrations(rules))
    typer.echo("\nWhat a duplicate run does")
    print_table(_duplicates(rules))
    if missing := [one.kind for one in rules if one.on_duplicate is None]:
        typer.echo(
            f"\n{len(missing)} of {len(rules)} kinds do not say what a duplicate run does: add on_duplicate='...' to"
            f" the @queue.task of {', '.join(missing)}"
        )


def _rules(handler: Handler[..., object]) -> KindRules:
    return KindRules(
        kind=handler.kind,
        queue=handler.queue,
        executor="async" if handler.signature.is_async else "thread",
        max_attempts=handler.policy.max_attempts,
        max_crashes=handler.policy.max_crashes,
        timeout_s=handler.timeout_s,
        retry_on=[_name(one) for one in handler.policy.retry_on],
        on_duplicate=handler.on_duplicate,
        function=handler.signature.function,
    )


def _name(error: type[BaseException]) -> str:
    return error.__qualname__ if error.__module__ == "builtins" else f"{error.__module__}.{error.__qualname__}"


def _registrations(rules: Sequence[KindRules]) -> Table:
    from rich.text import Text

    table = _table()
    table.add_column("KIND", overflow="fold")
    table.add_column("QUEUE", overflow="fold")
    table.add_column("EXECUTOR", no_wrap=True)
    table.add_column("ATTEMPTS", justify="right", no_wrap=True)
    table.add_column("CRASHES", justify="right", no_wrap=True)
    table.add_column("TIMEOUT", justify="right", no_wrap=True)
    table.add_column("RETRY ON", overflow="fold")
    for one in rules:
        numbers = (f"{one.max_attempts:,}", f"{one.max_crashes:,}", f"{one.timeout_s:g} s")
        retry_on = ", ".join(name.rpartition(".")[2] for name in one.retry_on)
        table.add_row(*map(Text, (one.kind, one.queue, one.executor, *numbers, retry_on)))
    return table


def _duplicates(rules: Sequence[KindRules]) -> Table:
    from rich.text import Text

    table = _table()
    table.show_header = False
    table.add_column("KIND", overflow="fold")
    table.add_column("DUPLICATE", overflow="fold")
    for one in rules:
        if one.on_duplicate is None:
            table.add_row(Text(one.kind), Text(MISSING, style="bold red"))
        else:
            table.add_row(Text(one.kind), Text(printable(" ".join(one.on_duplicate.split()))))
    return table


def _table() -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
