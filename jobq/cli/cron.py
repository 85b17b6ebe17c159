"""`jobq cron`: recurring entries as they stand, when they are due, and what a person does about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from jobq.cli.database import Dsn, Embedded, Instance, Schema, on_connection
from jobq.cli.output import AsJson, print_json, print_table, printable
from jobq.cli.stats import NOTHING, spell
from jobq.db.recurring import EntryNow
from jobq.queue import Queue
from jobq.recurring import Recurring
from jobq.settings import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from rich.table import Table

    from jobq.db.connect import AnyConnection

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Look at recurring entries, pause, resume, run and remove them.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The entry's name.", show_default=False)]


@app.command("list", epilog="Example: jobq cron list")
def list_(
    dsn: Dsn = None, schema: Schema = DEFAULT_SCHEMA, embedded: Embedded = False, as_json: AsJson = False
) -> None:
    """Show how each entry stands, and what should have run and did not.

    ENQUEUED is the last tick whose job is there, up to a minute ahead; NEXT is the one after it.
    """
    entries = _on(Instance(dsn, schema, embedded), lambda recurring, conn: recurring.list(conn=conn))
    if as_json:
        print_json({"entries": msgspec.to_builtins(entries)})
        return
    if not entries:
        typer.echo("No recurring entry: declare one with @queue.recurring, and start a worker.")
        return
    print_table(_table(entries))
    for line in _remarks(entries):
        typer.echo(printable(line))


@app.command("next", epilog="Example: jobq cron next daily_report --count 5")
def next_(
    name: Name,
    count: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many to show.")] = 20,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Show when an entry is due next, in its time zone and in UTC, by the database's clock."""
    ticks = _on(Instance(dsn, schema, embedded), lambda recurring, conn: recurring.next(name, count, conn=conn))
    if as_json:
        both = [{"local": tick.isoformat(), "utc": tick.astimezone(UTC).isoformat()} for tick in ticks]
        print_json({"name": name, "ticks": both})
        return
    for tick in ticks:
        typer.echo(f"{tick:%a %Y-%m-%d %H:%M %Z}  {tick.astimezone(UTC):%Y-%m-%d %H:%M} UTC")


@app.command(epilog='Example: jobq cron pause daily_report --why "the ledger is closed"')
def pause(
    name: Name,
    why: Annotated[str, typer.Option(metavar="TEXT", help="For whoever wonders later.", show_default=False)],
    by: Annotated[str | None, typer.Option(metavar="WHO", help="Else the user of this command.")] = None,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue no tick of an entry any more, and withdraw the job that waits for the next. It outlasts every restart."""
    _on(Instance(dsn, schema, embedded), lambda recurring, conn: recurring.pause(name, why=why, by=by, conn=conn))
    _done(name, "paused", as_json)


@app.command(epilog="Example: jobq cron resume daily_report")
def resume(
    name: Name,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Go on with the next tick; what came during the pause does not run."""
    _on(Instance(dsn, schema, embedded), lambda recurring, conn: recurring.resume(name, conn=conn))
    _done(name, "resumed", as_json)


@app.command(epilog="Example: jobq cron run daily_report")
def run(
    name: Name,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue the job of an entry now, beside its ticks, also while it is paused."""
    job_id = _on(Instance(dsn, schema, embedded), lambda recurring, conn: recurring.run(name, conn=conn))
    if as_json:
        print_json({"name": name, "job_id": job_id})
    else:
        typer.echo(f"job {job_id} of {name} is enqueued")


@app.command(epilog="Example: jobq cron remove daily_report")
def remove(
    name: Name,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Drop an entry for good, which the code no longer declares: a worker whose code does adds it again."""
    _on(Instance(dsn, schema, embedded), lambda recurring, conn: recurring.remove(name, conn=conn))
    _done(name, "removed", as_json)


def _on(instance: Instance, work: Callable[[Recurring, AnyConnection], Awaitable[T]]) -> T:
    recurring = Queue(schema=instance.schema).recurring
    return on_connection(instance, lambda conn: work(recurring, conn))


def _done(name: str, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "done": what})
    else:
        typer.echo(f"{name} is {what}")


def _table(entries: Sequence[EntryNow]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("NAME", "STATE", "ENQUEUED", "NEXT", "EXPRESSION", "ZONE", "KIND"):
        table.add_column(column)
    for one in entries:
        next_tick = None if one.state == "paused" else one.next_tick
        cells = (one.name, one.state, _when(one.last_tick, one.now), _when(next_tick, one.now))
        table.add_row(
            *(Text(printable(cell), no_wrap=True) for cell in (*cells, one.expression, one.zone, one.kind)),
        )
    return table


def _when(tick: datetime | None, now: datetime) -> str:
    if tick is None:
        return NOTHING
    seconds = (tick - now).total_seconds()
    return f"in {spell(seconds)}" if seconds > 0 else f"{spell(-seconds)} ago"


def _remarks(entries: Sequence[EntryNow]) -> Iterator[str]:
    """Yield what somebody should do something about, a line each."""
    for one in entries:
        if one.should_have_run_at is not None:
            yield f"{one.name} should have run at {one.should_have_run_at:%Y-%m-%d %H:%M} UTC and did not: {why(one)}"
        elif one.state == "overdue":
            yield f"{one.name} is due at a time that nobody knows: no worker has looked at it since it was changed"
        if one.fault is not None:
            yield f"{one.name} is faulty: {one.fault}"
        if one.paused_at is not None:
            yield f"{one.name} is paused since {one.paused_at:%Y-%m-%d %H:%M} UTC by {one.paused_by}: {one.paused_why}"
        if one.is_forsaken:
            yield f"{one.name} is declared by no live worker's code any more: `jobq cron remove {one.name}` drops it"


def why(entry: EntryNow) -> str:
    """Say why a tick has not run."""
    match entry.state:
        case "overdue":
            return "no worker has enqueued it"
        case "late":
            return f"nobody has started job {entry.last_job_id}; see `jobq explain {entry.last_job_id}`"
        case _:
            return f"it was too late when a worker came ({entry.missed:,} missed in all)"
