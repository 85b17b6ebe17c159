"""`jobq config`: every setting of the command line, its value, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from jobq.cli.database import Dsn, ListenDsn, PreparedStatements, Schema, StatedDsn, StatedSwitch, masked
from jobq.cli.durations import in_seconds
from jobq.cli.logs import LogFormat, LogLevel
from jobq.cli.origins import key_of, origin_of, variables_of
from jobq.cli.output import AsJson, print_json, print_table, printable
from jobq.cli.settings_file import OTHERS
from jobq.cli.worker_options import (
    AppDir,
    CancelGrace,
    Concurrency,
    Format,
    Grace,
    Http,
    Log,
    MaybeAppQueue,
    StartLimit,
    WorkerLease,
    read_concurrency,
)
from jobq.settings import DEFAULT_SCHEMA, DEFAULT_SLOTS, WorkerSettings
from jobq.worker.probes import Address

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = "Example: jobq config --grace 60s"

NOT_STATED = "-"


class Setting(msgspec.Struct, frozen=True):
    """One setting as it holds here. *text* is what a person reads, *value* what a program gets; None: not stated."""

    key: str
    text: str
    value: object
    origin: str


def config(
    ctx: typer.Context,
    target: MaybeAppQueue = None,
    dsn: Dsn = None,
    listen_dsn: ListenDsn = None,
    prepared_statements: PreparedStatements = None,
    schema: Schema = DEFAULT_SCHEMA,
    app_dir: AppDir = Path(),
    concurrency: Concurrency = None,
    grace: Grace = None,
    cancel_grace: CancelGrace = None,
    start_limit: StartLimit = None,
    worker_lease: WorkerLease = None,
    http: Http = None,
    log_level: Log = LogLevel.INFO,
    log_format: Format = LogFormat.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Show each setting, its value and where that comes from.

    A value is looked for on the command line, then in the environment (JOBQ_GRACE for --grace), then in the settings
    file, and is else the default. The file is jobq.toml, or [tool.jobq] in pyproject.toml, of the working directory or
    the nearest of its parents. Takes the options of other commands, to show what they would change. Needs no database;
    passwords are not shown.
    """
    settings = list(_settings(ctx))
    file = ctx.find_root().obj
    if as_json:
        values = {one.key: {"value": one.value, "origin": one.origin} for one in settings}
        print_json({"file": None if file is None else str(file.path), "settings": values})
        return
    print_table(_table(settings))


def _settings(ctx: typer.Context) -> Iterator[Setting]:
    for param in ctx.command.params:
        if variables_of(param):
            key = key_of(param)
            value = ctx.params[str(param.name)]
            yield Setting(key, *_spelled(_defaults().get(key) if value in (None, []) else value), origin_of(ctx, param))


def _defaults() -> dict[str, object]:
    """Return what holds where an option leaves it to the worker."""
    worker = WorkerSettings()
    seconds = {
        "grace": worker.grace_s,
        "cancel_grace": worker.cancel_grace_s,
        "start_limit": worker.start_limit_s,
        "worker_lease": worker.worker_lease_s,
    }
    stated = {"concurrency": [str(DEFAULT_SLOTS)], "prepared_statements": StatedSwitch(True)}
    return {**stated, **{key: timedelta(seconds=long) for key, long in seconds.items()}}


def _spelled(value: Any) -> tuple[str, object]:
    """Return a value for a person, and for a program."""
    match value:
        case None:
            return NOT_STATED, None
        case StatedDsn():
            return masked(value.text), masked(value.text)
        case StatedSwitch(is_on):
            return ("on" if is_on else "off"), is_on
        case timedelta():
            return in_seconds(value), value.total_seconds()
        case list():
            slots, others = read_concurrency(value)
            return " ".join(value), {**slots, OTHERS: DEFAULT_SLOTS if others is None else others}
        case Address() | Path() | LogLevel() | LogFormat():
            return str(value), str(value)
        case _:
            return str(value), value


def _table(settings: list[Setting]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("SETTING", no_wrap=True)
    table.add_column("VALUE", overflow="fold")
    table.add_column("ORIGIN", overflow="fold")
    for one in settings:
        table.add_row(*(Text(printable(cell)) for cell in (one.key, one.text, one.origin)))
    return table
