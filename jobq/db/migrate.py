"""Bring a schema to this code's version: forward only, one transaction a migration, safe in any number of processes.

Only `jobq migrate` comes here. Workers and producers never run DDL: they ask `check_version` and say
which command to run.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import asyncpg
import msgspec

from jobq.db.connect import driver_errors
from jobq.db.statements import load_statements, render
from jobq.errors import MigrationError, SchemaError

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    from jobq.db.connect import AnyConnection

LOCK_TIMEOUT_S = 3.0
"""How long a migration waits for a lock; everything behind it in the lock's queue waits as long."""

_FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One step forward: its number, its name, and its SQL with the schema's token."""

    version: int
    name: str
    text: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Return all migrations in order."""
    found = [
        Migration(int(match[1]), match[2], entry.read_text("utf-8"))
        for entry in files("jobq.db").joinpath("migrations").iterdir()
        if (match := _FILE_NAME.fullmatch(entry.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


def newest_version() -> int:
    """Return the version that this code needs."""
    return migrations()[-1].version


def as_sql(schema: str, *, after: int = 0) -> str:
    """Return a script for `psql` that does what `migrate` does from version *after* on."""
    parts = [
        "-- Run with psql -v ON_ERROR_STOP=1: one transaction a migration.\n",
        f"set lock_timeout = '{LOCK_TIMEOUT_S:g}s';\n",
        _sql(schema, "create_instance") + ";\n" if after == 0 else "",
    ]
    for migration in migrations():
        if migration.version > after:
            parts += [
                "begin;\n",
                _sql(schema, "lock_migrations").replace("$1", _literal(schema)) + ";\n",
                render(migration.text, schema),
                _sql(schema, "record_migration")
                .replace("$1", str(migration.version))
                .replace("$2", _literal(migration.name)),
                ";\ncommit;\n",
            ]
    return "\n".join(parts)


async def current_version(conn: AnyConnection, schema: str) -> int:
    """Return the version of *schema* in the database, 0 if jobq is not installed there."""
    with driver_errors():
        if not await conn.fetchval(_sql(schema, "find_instance"), schema):
            return 0
        version: int = await conn.fetchval(_sql(schema, "read_version"))
        return version


async def check_version(conn: AnyConnection, schema: str) -> str | None:
    """Compare the database with this code. Returns a warning if the schema is newer, which is compatible.

    Raises `SchemaError` with the command to run if the schema is missing or older.
    """
    found, needed = await current_version(conn, schema), newest_version()
    if found == 0:
        raise SchemaError(f"schema {schema!r} has no jobq in it: run `jobq migrate{_option(schema)}` once")
    if found < needed:
        raise SchemaError(
            f"schema {schema!r} is at version {found}, this code needs {needed}: run `jobq migrate{_option(schema)}`"
        )
    if found > needed:
        return f"schema {schema!r} is at version {found}, newer than this code's {needed}: upgrade jobq soon"
    return None


async def migrate(conn: Connection[Record], schema: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> list[Migration]:
    """Apply what is missing, each migration in a transaction of its own. Returns what this call applied.

    Any number of processes may run it at once: each takes the same transaction-scoped advisory lock and
    reads the version again under it, so the losers find nothing left to do. Raises `MigrationError` if a
    lock was not to be had in time: nothing of that migration was applied, run it again.
    """
    applied = []
    for migration in migrations():
        try:
            async with conn.transaction(isolation="read_committed"):
                if await _apply(conn, schema, migration, lock_timeout_s):
                    applied.append(migration)
        except asyncpg.LockNotAvailableError as error:
            raise MigrationError(
                f"migration {migration.version:04d} ({migration.name}) did not get its lock within"
                f" {lock_timeout_s:g} s ({error}); nothing was changed, run it again at a quieter time"
            ) from error
        except asyncpg.PostgresError:
            with driver_errors():
                raise
    return applied


async def _apply(conn: Connection[Record], schema: str, migration: Migration, lock_timeout_s: float) -> bool:
    await conn.execute(_sql(schema, "lock_migrations"), schema)
    await conn.execute(_sql(schema, "set_lock_timeout"), f"{lock_timeout_s:g}s")
    if not await conn.fetchval(_sql(schema, "find_instance"), schema):
        await conn.execute(_sql(schema, "create_instance"))
    elif await conn.fetchval(_sql(schema, "read_version")) >= migration.version:
        return False
    await conn.execute(render(migration.text, schema))
    await conn.execute(_sql(schema, "record_migration"), migration.version, migration.name)
    return True


async def set_history(conn: Connection[Record], schema: str, keep_s: float) -> int:
    """Keep finished jobs for at least *keep_s* seconds (0: write no history). Returns the slot length in seconds.

    The ring keeps five full slots, so a slot lasts a fifth, rounded up.
    """
    slot_s = -int(-keep_s // 5)
    with driver_errors():
        await conn.execute(_sql(schema, "set_history"), slot_s)
    return slot_s


def _sql(schema: str, name: str) -> str:
    return load_statements(schema)[name]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _option(schema: str) -> str:
    return "" if schema == "jobq" else f" --schema {shlex.quote(schema)}"
