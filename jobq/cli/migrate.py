"""`jobq migrate`: install jobq in a schema, bring it to this code's version, or ask whether that is needed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from jobq.cli.database import Dsn, Embedded, Instance, Schema, dsn_of
from jobq.cli.durations import duration, words
from jobq.cli.output import AsJson, print_json, say
from jobq.cli.usage import UsageError
from jobq.core.names import shown
from jobq.db import migrate as migrations
from jobq.db.connect import LEAVE_TIMEOUT_S, connect, driver_errors
from jobq.errors import SchemaError
from jobq.settings import DEFAULT_SCHEMA

MAX_HISTORY = timedelta(days=5 * 365)  # five slots of at most a year: what the schema allows

EXAMPLES = "Example: jobq migrate --dsn postgresql://app@db/shop --history 7d"


def _history(text: str) -> timedelta:
    if (keep := duration(text)) > MAX_HISTORY:
        raise typer.BadParameter(f"{text} is more than {MAX_HISTORY.days}d.")
    return keep


def migrate(
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 0 if the schema is up to date, else with 78.")
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the script of a new installation, for psql. Needs no database.")
    ] = False,
    history: Annotated[
        timedelta | None,
        typer.Option(
            parser=_history,
            metavar="DURATION",
            help="Keep finished jobs for at least 36h, 7d, ...; 0 keeps none. A new schema keeps them for a day.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install jobq in the database, or upgrade it.

    Workers never do this. Each migration is a transaction of its own, and any number of processes may run this command
    at once.
    """
    instance = Instance(dsn, schema, embedded)
    if check + sql + (history is not None) > 1:
        raise UsageError("--check, --sql and --history exclude each other.")
    if sql:
        typer.echo(migrations.as_sql(schema), nl=False)
        return
    with dsn_of(instance) as found_dsn:
        if check:
            asyncio.run(_check(found_dsn, schema, as_json))
        else:
            asyncio.run(_migrate(found_dsn, schema, history, as_json))


async def _check(dsn: str, schema: str, as_json: bool) -> None:
    with driver_errors():
        conn = await connect(dsn, role="migrate")
    try:
        version = await migrations.current_version(conn, schema)
        problem: SchemaError | None = None
        try:
            warning = await migrations.check_version(conn, schema)
        except SchemaError as error:
            warning, problem = None, error
    finally:
        await conn.close(timeout=LEAVE_TIMEOUT_S)
    if as_json:
        needed = migrations.newest_version()
        print_json({"schema": schema, "version": version, "needed": needed, "up_to_date": problem is None})
    if problem is not None:
        raise problem
    if warning is not None:
        say(warning)
    if not as_json:
        typer.echo(f"schema {shown(schema)} is up to date, at version {version}")


async def _migrate(dsn: str, schema: str, history: timedelta | None, as_json: bool) -> None:
    with driver_errors():
        conn = await connect(dsn, role="migrate")
    try:
        applied = await migrations.migrate(conn, schema)
        if history is not None:
            await migrations.set_history(conn, schema, history.total_seconds())
        version = await migrations.current_version(conn, schema)
    finally:
        await conn.close(timeout=LEAVE_TIMEOUT_S)
    if as_json:
        steps = [{"version": migration.version, "name": migration.name} for migration in applied]
        print_json({"schema": schema, "version": version, "applied": steps})
        return
    for migration in applied:
        typer.echo(f"applied {migration.version:04d} ({migration.name}) to schema {shown(schema)}")
    if history is not None:
        kept = f"are kept for {words(history)} or longer" if history else "leave no history"
        typer.echo(f"finished jobs {kept}")
    elif not applied:
        typer.echo(f"nothing to do: schema {shown(schema)} is at version {version}")
