"""Which instance a command works on (`--dsn`, `--schema`, `--embedded`), and the connection to it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import unquote

import msgspec
import typer

from jobq.cli.origins import is_typed, place_of
from jobq.cli.output import say
from jobq.cli.usage import UsageError
from jobq.core.names import schema_fault
from jobq.db.connect import LEAVE_TIMEOUT_S, connect, driver_errors
from jobq.db.migrate import check_version, migrate
from jobq.errors import ConfigurationError
from jobq.settings import (
    DEFAULT_SCHEMA,
    DSN_VARIABLES,
    LISTEN_DSN_VARIABLE,
    PREPARED_STATEMENTS_VARIABLE,
    Access,
    check_dsn,
    find_dsn,
    read_switch,
)

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long a command waits before it says that it does."""


class StatedDsn(msgspec.Struct, frozen=True):
    """A DSN, and whether it was typed, or is configured: in the environment or in a file."""

    text: str
    is_typed: bool = False


class StatedSwitch(msgspec.Struct, frozen=True):
    """Whether something is on, and whether that was typed, or is configured."""

    is_on: bool
    is_typed: bool = False


class Instance(msgspec.Struct, frozen=True):
    """One schema in one database, as the command line names it. *dsn* is None if *embedded*, or if none is stated."""

    dsn: StatedDsn | None
    schema: str
    embedded: bool

    def command(self, text: str) -> str:
        """Return the shell command `jobq TEXT` for this instance. A password is not repeated."""
        words = ["jobq", text]
        if self.schema != DEFAULT_SCHEMA:
            words.append(f"--schema {shlex.quote(self.schema)}")
        if self.embedded:
            words.append("--embedded")
        if self.dsn is not None and self.dsn.is_typed:
            dsn = self.dsn.text
            words.append("# with the same --dsn" if masked(dsn) != dsn else f"--dsn {shlex.quote(dsn)}")
        return " ".join(words)


def masked(dsn: str) -> str:
    """Return *dsn* with everything covered that may be a password."""
    address, question, query = dsn.partition("?")
    # Up to the last @, because a password may hold one that is not escaped.
    address = re.sub(r"(://[^:]*):.*@", r"\1:***@", address, flags=re.DOTALL)
    pairs = [
        f"{name}=***" if equals and "password" in unquote(name).lower() else f"{name}{equals}{value}"
        for name, equals, value in (pair.partition("=") for pair in query.split("&"))
    ]
    return f"{address}{question}{'&'.join(pairs)}"


def _one_database(ctx: typer.Context, param: typer.CallbackParam, dsn: StatedDsn | None) -> StatedDsn | None:
    """Check a DSN, and say who states it. `--embedded` goes before one that nobody has typed."""
    if dsn is None:
        return None
    typed = is_typed(ctx, param)
    if ctx.params.get("embedded"):
        if typed:
            raise UsageError("--dsn and --embedded name two databases: choose one of them.")
        return None
    stated = StatedDsn(check_dsn(dsn.text, source=place_of(ctx, param)), typed)
    if typed and masked(stated.text) != stated.text and not ctx.resilient_parsing:
        say("jobq: everybody on this machine can read the password in --dsn, in the list of processes: set JOBQ_DSN")
    return stated


def _listen_dsn(ctx: typer.Context, param: typer.CallbackParam, dsn: StatedDsn | None) -> StatedDsn | None:
    return None if dsn is None else StatedDsn(check_dsn(dsn.text, source=place_of(ctx, param)), is_typed(ctx, param))


def _switch(text: str) -> StatedSwitch:
    if (is_on := read_switch(text)) is None:
        raise typer.BadParameter(f"{text!r} is neither on nor off.")
    return StatedSwitch(is_on)


def _stated_switch(ctx: typer.Context, param: typer.CallbackParam, switch: StatedSwitch | None) -> StatedSwitch | None:
    return None if switch is None else StatedSwitch(switch.is_on, is_typed(ctx, param))


def _possible_schema(ctx: typer.Context, param: typer.CallbackParam, schema: str) -> str:
    if fault := schema_fault(schema):
        raise ConfigurationError(f"{place_of(ctx, param)}: {fault}")
    return schema


Dsn = Annotated[
    StatedDsn | None,
    typer.Option(
        "--dsn",
        parser=StatedDsn,
        callback=_one_database,
        metavar="DSN",
        envvar=list(DSN_VARIABLES),
        show_envvar=False,
        help="postgresql://user@host/database. Else JOBQ_DSN, DATABASE_URL, or dsn of the settings file.",
        show_default=False,
    ),
]
ListenDsn = Annotated[
    StatedDsn | None,
    typer.Option(
        "--listen-dsn",
        parser=StatedDsn,
        callback=_listen_dsn,
        metavar="DSN",
        envvar=LISTEN_DSN_VARIABLE,
        show_envvar=False,
        help="Where to LISTEN, if --dsn is a pooler in transaction mode: the same database, around the pooler.",
        show_default=False,
    ),
]
PreparedStatements = Annotated[
    StatedSwitch | None,
    typer.Option(
        "--prepared-statements",
        parser=_switch,
        callback=_stated_switch,
        metavar="on|off",
        envvar=PREPARED_STATEMENTS_VARIABLE,
        show_envvar=False,
        help="Keep prepared statements (on); off behind a pooler in transaction mode.",
        show_default=False,
    ),
]
Schema = Annotated[
    str,
    typer.Option(
        "--schema",
        callback=_possible_schema,
        metavar="NAME",
        envvar="JOBQ_SCHEMA",
        show_envvar=False,
        help="The schema that jobq is installed in.",
    ),
]
Embedded = Annotated[
    bool,
    typer.Option(
        "--embedded",
        is_eager=True,  # known before the DSN is looked at
        help="Use a PostgreSQL of its own, with its data in ./.jobq: start it, or join it.",
    ),
]


def stated_access(
    dsn: StatedDsn | None, listen_dsn: StatedDsn | None, prepared: StatedSwitch | None, *, is_typed: bool
) -> Access:
    """Return what of the way to the database was typed, or what was not."""
    return Access(
        dsn=dsn.text if dsn is not None and dsn.is_typed is is_typed else None,
        listen_dsn=listen_dsn.text if listen_dsn is not None and listen_dsn.is_typed is is_typed else None,
        prepared_statements=prepared.is_on if prepared is not None and prepared.is_typed is is_typed else None,
    )


@contextmanager
def embedded_server(*, is_to_stay: bool = True) -> Iterator[str]:
    """Start or join the server of the current directory, say so, and give its DSN; stop it if it was started.

    With *is_to_stay* its data is somebody's who may want to look at it: how to connect is said too.
    """
    from jobq.embedded import start

    with start() as server:
        done = "joined the" if server.joined else "started an"
        look = f"\n  psql '{server.dsn}'" if is_to_stay else ""
        say(f"{done} embedded PostgreSQL {server.version} in {Path.cwd() / '.jobq'}{look}")
        try:
            yield server.dsn
        finally:
            if not server.joined:
                say("stopping the embedded PostgreSQL")


@contextmanager
def dsn_of(instance: Instance) -> Iterator[str]:
    """Give the DSN of *instance*, with its embedded server running if it has one.

    Raises `ConfigurationError` if none is stated.
    """
    if instance.embedded:
        with embedded_server() as dsn:
            yield dsn
    else:
        yield find_dsn(None if instance.dsn is None else instance.dsn.text, os.environ)


def on_connection(instance: Instance, work: Callable[[AnyConnection], Awaitable[T]]) -> T:
    """Run *work* on a connection to *instance*, whose schema is checked before; an embedded one is migrated.

    Raises `SchemaError` with the command to run, or `DatabaseUnavailableError`.
    """
    with dsn_of(instance) as dsn:
        return asyncio.run(on_connection_to(dsn, instance, work))


async def on_connection_to(
    dsn: str, instance: Instance, work: Callable[[AnyConnection], Awaitable[T]], *, any_version: bool = False
) -> T:
    """Do what `on_connection` does, in a running loop. With *any_version* the schema may be older, or missing."""
    if instance.embedded:
        await migrate_embedded(dsn, instance.schema)
    with driver_errors():
        conn = await connect(dsn, role="cli")
        remark = asyncio.get_running_loop().call_later(PATIENCE_S, _say_that_it_lasts, conn.get_server_pid())
        try:
            if not any_version and (warning := await check_version(conn, instance.schema)):
                say(warning)
            return await work(conn)
        finally:
            remark.cancel()
            await conn.close(timeout=LEAVE_TIMEOUT_S)


def _say_that_it_lasts(server_pid: int) -> None:
    say(
        f"jobq: not done after {PATIENCE_S:g} s, going on: the database is busy, or a session is in the way. Which one,"
        f" says: select pg_blocking_pids({server_pid})"
    )


async def migrate_embedded(dsn: str, schema: str) -> None:
    """Bring the schema on an embedded server up to date, and say what that changed."""
    with driver_errors():
        conn = await connect(dsn, role="migrate")
        try:
            for migration in await migrate(conn, schema):
                say(f"applied {migration.version:04d} ({migration.name}) to schema {schema!r}")
        finally:
            await conn.close(timeout=LEAVE_TIMEOUT_S)
