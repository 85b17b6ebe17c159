"""Which instance a command works on (`--dsn`, `--schema`, `--embedded`), and the connection to it."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
import typer

from jobq.cli.output import say
from jobq.cli.usage import UsageError
from jobq.core.names import schema_fault
from jobq.db.connect import LEAVE_TIMEOUT_S, connect, driver_errors
from jobq.db.migrate import check_version, migrate
from jobq.errors import ConfigurationError
from jobq.settings import DEFAULT_SCHEMA, find_dsn

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

T = TypeVar("T")

Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        help="postgresql://user@host/database. Without it, JOBQ_DSN or DATABASE_URL of the environment.",
        show_default=False,
    ),
]
Schema = Annotated[str, typer.Option("--schema", metavar="NAME", help="The schema that jobq is installed in.")]
Embedded = Annotated[
    bool,
    typer.Option("--embedded", help="Use a PostgreSQL of its own, with its data in ./.jobq: start it, or join it."),
]


class Instance(msgspec.Struct, frozen=True):
    """One schema in one database, as the command line names it."""

    dsn: str | None
    schema: str
    embedded: bool

    def __post_init__(self) -> None:
        check_one_database(self.dsn, self.embedded)
        if fault := schema_fault(self.schema):
            raise ConfigurationError(fault)

    def command(self, text: str) -> str:
        """Return the shell command `jobq TEXT` for this instance. A password is not repeated."""
        words = ["jobq", text]
        if self.schema != DEFAULT_SCHEMA:
            words.append(f"--schema {shlex.quote(self.schema)}")
        if self.embedded:
            words.append("--embedded")
        if self.dsn is not None:
            words.append("# with the same --dsn" if _has_password(self.dsn) else f"--dsn {shlex.quote(self.dsn)}")
        return " ".join(words)


def check_one_database(dsn: str | None, embedded: bool) -> None:
    """Raise `UsageError` if both are given."""
    if embedded and dsn is not None:
        raise UsageError("--dsn and --embedded name two databases: choose one of them.")


@contextmanager
def embedded_server() -> Iterator[str]:
    """Start or join the server of the current directory, say so, and give its DSN; stop it if it was started."""
    from jobq.embedded import start

    with start() as server:
        done = "joined the" if server.joined else "started an"
        say(f"{done} embedded PostgreSQL {server.version} in {Path.cwd() / '.jobq'}\n  psql '{server.dsn}'")
        try:
            yield server.dsn
        finally:
            if not server.joined:
                say("stopping the embedded PostgreSQL")


@contextmanager
def dsn_of(instance: Instance) -> Iterator[str]:
    """Give the DSN of *instance*, with its embedded server running if it has one.

    Raises `ConfigurationError` if none is stated, here or in the environment.
    """
    if instance.embedded:
        with embedded_server() as dsn:
            yield dsn
    else:
        yield find_dsn(instance.dsn, os.environ)


def on_connection(instance: Instance, work: Callable[[AnyConnection], Awaitable[T]]) -> T:
    """Run *work* on a connection to *instance*, whose schema is checked before; an embedded one is migrated.

    Raises `SchemaError` with the command to run, or `DatabaseUnavailableError`.
    """
    with dsn_of(instance) as dsn:
        return asyncio.run(_on_connection(dsn, instance, work))


async def _on_connection(dsn: str, instance: Instance, work: Callable[[AnyConnection], Awaitable[T]]) -> T:
    if instance.embedded:
        await migrate_embedded(dsn, instance.schema)
    with driver_errors():
        conn = await connect(dsn, role="cli")
        try:
            if warning := await check_version(conn, instance.schema):
                say(warning)
            return await work(conn)
        finally:
            await conn.close(timeout=LEAVE_TIMEOUT_S)


async def migrate_embedded(dsn: str, schema: str) -> None:
    """Bring the schema on an embedded server up to date, and say what that changed."""
    with driver_errors():
        conn = await connect(dsn, role="migrate")
        try:
            for migration in await migrate(conn, schema):
                say(f"applied {migration.version:04d} ({migration.name}) to schema {schema!r}")
        finally:
            await conn.close(timeout=LEAVE_TIMEOUT_S)


def _has_password(dsn: str) -> bool:
    parts = urlsplit(dsn)
    return bool(parts.password) or "password" in parse_qs(parts.query)
