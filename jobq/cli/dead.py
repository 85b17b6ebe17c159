"""`jobq dead`: look at dead letters, make them ready again, or drop them; never all of them by accident."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from jobq.cli.database import Dsn, Embedded, Instance, Schema, on_connection
from jobq.cli.dead_filter import (
    All,
    Fingerprint,
    Id,
    Ids,
    InQueue,
    Kind,
    OlderThan,
    YoungerThan,
    chosen,
    read_filter,
)
from jobq.cli.dead_text import as_record, listing, page
from jobq.cli.output import AsJson, print_json, print_table, say, terminal_width
from jobq.cli.usage import UsageError
from jobq.core.job import JobId
from jobq.db.reports import DeadFilter, DeadLetter, DeadLetterDetail, Reports
from jobq.dead_letters import DeadLetters, RedriveReport
from jobq.errors import JobqError
from jobq.settings import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

FIRST_FEW = 10
"""Dead letters that a dry run or a question shows."""

app = typer.Typer(no_args_is_help=True, help="List, show, redrive and delete jobs that failed for good.")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: say how many, and show the first.")]


@app.command("list", epilog="Example: jobq dead list --kind send_receipt --younger-than 24h")
def list_(
    kind: Kind = None,
    queue: InQueue = None,
    fingerprint: Fingerprint = None,
    older_than: OlderThan = None,
    younger_than: YoungerThan = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="How many to show.")] = 50,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""
    wanted = read_filter(None, kind, queue, fingerprint, older_than, younger_than)
    letters, total = _look(Instance(dsn, schema, embedded), wanted, limit)
    if as_json:
        print_json({"total": total, "dead_letters": [as_record(letter) for letter in letters]})
    else:
        _print_letters(letters)
        shown = f", the newest {len(letters):,} shown: --limit shows more" if len(letters) < total else ""
        typer.echo(f"{_count(total, wanted)}{shown}")


@app.command(epilog="Example: jobq dead show 4711")
def show(
    id_: Id,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter whole, with its errors and its payload."""
    instance = Instance(dsn, schema, embedded)

    async def look(conn: AnyConnection) -> tuple[DeadLetterDetail | None, int]:
        reports = Reports(schema)
        letter = await reports.show_dead(conn, JobId(id_))
        like_it = DeadFilter(fingerprint="" if letter is None else letter.fingerprint)
        return letter, (await reports.count_dead(conn, like_it))[0]

    letter, same_error = on_connection(instance, look)
    if letter is None:
        raise JobqError(f"there is no dead letter {id_}: it was redriven or deleted, or it is still being tried")
    if as_json:
        print_json(as_record(letter))
    else:
        typer.echo(page(letter, same_error=same_error, instance=instance, now=datetime.now(UTC)))


@app.command(epilog="Example: jobq dead redrive --kind send_receipt --younger-than 24h --dry-run")
def redrive(
    ids: Ids = None,
    kind: Kind = None,
    queue: InQueue = None,
    fingerprint: Fingerprint = None,
    older_than: OlderThan = None,
    younger_than: YoungerThan = None,
    all_: All = False,
    dry_run: DryRun = False,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Make dead letters ready again, once the cause is repaired.

    They keep their id and their errors and get all their attempts anew. All filters that are stated must match. Large
    numbers go in batches: what is done stays done if this is interrupted, and doing it again goes on. Exits with 1 if
    one that was asked for is still dead, or is none.
    """
    wanted = chosen(read_filter(ids, kind, queue, fingerprint, older_than, younger_than), all_)
    instance = Instance(dsn, schema, embedded)
    if dry_run:
        _show_dry_run(instance, wanted, "redriven", as_json)
        return

    async def work(conn: AnyConnection) -> tuple[list[int], RedriveReport]:
        missing = await _missing(conn, schema, wanted)
        return missing, await DeadLetters(schema).redrive(conn, wanted)

    missing, report = on_connection(instance, work)
    if as_json:
        held = [{"id": one.id, "held_by": one.owner_id} for one in report.held]
        print_json({"redriven": report.redriven, "held": held, "missing": missing})
    else:
        typer.echo(f"{report.redriven:,} redriven")
        for one in report.held:
            say(f"{one.id} stays dead: job {one.owner_id} holds its idempotency key")
        _say_missing(missing)
    if missing or report.held:
        raise typer.Exit(1)


@app.command(epilog="Example: jobq dead delete --fingerprint 3f2a90c1d4e5 --older-than 30d")
def delete(
    ids: Ids = None,
    kind: Kind = None,
    queue: InQueue = None,
    fingerprint: Fingerprint = None,
    older_than: OlderThan = None,
    younger_than: YoungerThan = None,
    all_: All = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Drop dead letters for good.

    Asks first, unless ids are given.
    """
    wanted = chosen(read_filter(ids, kind, queue, fingerprint, older_than, younger_than), all_)
    instance = Instance(dsn, schema, embedded)
    if dry_run:
        _show_dry_run(instance, wanted, "deleted", as_json)
        return
    if not yes and wanted.ids is None:
        _confirm_delete(instance, wanted)

    async def work(conn: AnyConnection) -> tuple[list[int], int]:
        missing = await _missing(conn, schema, wanted)
        return missing, await DeadLetters(schema).delete(conn, wanted)

    missing, deleted = on_connection(instance, work)
    if as_json:
        print_json({"deleted": deleted, "missing": missing})
    else:
        typer.echo(f"{deleted:,} deleted")
        _say_missing(missing)
    if missing:
        raise typer.Exit(1)


def _look(instance: Instance, wanted: DeadFilter, limit: int) -> tuple[list[DeadLetter], int]:
    """Return the newest of the dead letters that match, and how many there are."""

    async def look(conn: AnyConnection) -> tuple[list[DeadLetter], int]:
        reports = Reports(instance.schema)
        return await reports.list_dead(conn, wanted, limit=limit), (await reports.count_dead(conn, wanted))[0]

    return on_connection(instance, look)


async def _missing(conn: AnyConnection, schema: str, wanted: DeadFilter) -> list[int]:
    """Return the ids that were stated and do not match."""
    if wanted.ids is None:
        return []
    found = await Reports(schema).list_dead(conn, wanted, limit=len(wanted.ids))
    return sorted(set(wanted.ids) - {letter.id for letter in found})


def _say_missing(missing: list[int]) -> None:
    for id_ in missing:
        say(f"{id_} is no dead letter, or does not match the filters")


def _show_dry_run(instance: Instance, wanted: DeadFilter, done: str, as_json: bool) -> None:
    letters, total = _look(instance, wanted, FIRST_FEW)
    if as_json:
        print_json({"dry_run": True, "total": total, "dead_letters": [as_record(letter) for letter in letters]})
    else:
        _print_letters(letters)
        shown = f", the newest {len(letters):,} of them shown" if len(letters) < total else ""
        typer.echo(f"{_count(total, wanted)}{shown}; without --dry-run they would be {done}")


def _confirm_delete(instance: Instance, wanted: DeadFilter) -> None:
    if not sys.stdin.isatty():
        raise UsageError("Nobody can be asked, because stdin is no terminal: add --yes, or try --dry-run.")
    letters, total = _look(instance, wanted, FIRST_FEW)
    if total == 0:
        return
    _print_letters(letters)
    typer.confirm(f"{_count(total, wanted)}. Delete for good?", abort=True, err=True)


def _print_letters(letters: list[DeadLetter]) -> None:
    if letters:
        print_table(listing(letters, now=datetime.now(UTC), width=terminal_width()))


def _count(total: int, wanted: DeadFilter) -> str:
    letters = "1 dead letter" if total == 1 else f"{total:,} dead letters"
    return letters if wanted.is_empty else f"{letters} {'matches' if total == 1 else 'match'}"
