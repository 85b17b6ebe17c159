"""Migrations: forward only, once each, from any number of processes, and nobody but them runs DDL."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from jobq import DatabaseError, MigrationError, SchemaError
from jobq.db import migrate
from jobq.db.migrate import Migration, as_sql, check_version, current_version
from jobq.db.statements import quote_identifier, render
from tests.db.catalogue import catalogue
from tests.db.rows import Rows

if TYPE_CHECKING:
    from asyncpg import Record

    from tests.conftest import Conn

# Applied in production: a change is a migration of its own. Refreshed only until the first release is committed.
FROZEN = {
    "0001_initial.sql": "d979d9a8aabe0d51ba895294b6a921eae3b7e9ee3581f79a5074b947a2143b6b",
    "0002_worker.sql": "42adb38ca2493db61b84fbc871e05518498094e81fd4501a438c3ff058de5bfb",
    "0003_records.sql": "36a5b73713e2f5c9fcf170d52ac9600ea81aa487807c4f0e990e3986f07aa716",
    "0004_see.sql": "ac94b74463060a91b699012e1565b64e64e0ed16b6828813269cd094f245d432",
    "0005_alerts.sql": "6998f71a36465a2e6e96e62ad83e55a1ee78fbf730da913fe1308d7dbe4ce2d3",
    "0006_recurring.sql": "f726d0044ada382dba5e5ddcc42500e12fa89c239b6bcf2c9af2c4e454720b18",
}

RELEASES = [(1, "initial"), (2, "worker"), (3, "records"), (4, "see"), (5, "alerts"), (6, "recurring")]
NEWEST = len(RELEASES)

FOLDER = files("jobq.db").joinpath("migrations")
DDL = re.compile(r"\b(create|alter|drop|truncate|comment|grant|revoke|reindex|cluster|vacuum|lock|listen)\b", re.I)


@pytest.fixture
async def another(empty_conn: Conn, schema: str) -> object:
    """The name of a second schema, which is dropped after the test."""
    yield f"{schema} too"
    await empty_conn.execute(f"drop schema if exists {quote_identifier(f'{schema} too')} cascade")


@pytest.fixture
def next_migration(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Pretend that this code has one more migration, with the given SQL."""
    real = migrate.migrations()

    def pretend(text: str) -> None:
        monkeypatch.setattr(migrate, "migrations", lambda: (*real, Migration(NEWEST + 1, "next", text)))

    return pretend


async def applied(conn: Conn, schema: str) -> list[Record]:
    return await conn.fetch(f"select version, name from {quote_identifier(schema)}.migration order by version")


# -- from empty --------------------------------------------------------------------------------------


async def test_an_empty_database_gets_everything(empty_conn: Conn, schema: str) -> None:
    """Each migration once, in order, with its name and time; and what this call applied is returned."""
    before = await current_version(empty_conn, schema)

    done = await migrate.migrate(empty_conn, schema)

    assert before == 0
    assert done == list(migrate.migrations())
    assert [tuple(row) for row in await applied(empty_conn, schema)] == RELEASES
    assert await current_version(empty_conn, schema) == migrate.newest_version() == NEWEST


async def test_a_second_run_changes_nothing(conn: Conn, schema: str) -> None:
    """It says that there was nothing to do."""
    before = await catalogue(conn, schema), await applied(conn, schema)

    done = await migrate.migrate(conn, schema)

    assert done == []
    assert (await catalogue(conn, schema), await applied(conn, schema)) == before


async def test_what_else_is_in_the_schema_stays(empty_conn: Conn, schema: str) -> None:
    """A schema that exists is used as it is, foreign tables in it and in others untouched."""
    name = quote_identifier(schema)
    await empty_conn.execute(f"create schema {name}; create table {name}.orders as select 1 as id")
    before = await catalogue(empty_conn, schema)
    elsewhere = await everything_else(empty_conn, schema)

    await migrate.migrate(empty_conn, schema)

    assert set(before) <= set(await catalogue(empty_conn, schema))
    assert await empty_conn.fetchval(f"select id from {name}.orders") == 1
    assert await everything_else(empty_conn, schema) == elsewhere


async def everything_else(conn: Conn, schema: str) -> list[str]:
    """The objects of all other schemas."""
    names: list[str] = await conn.fetchval(
        "select array(select format('%s %s', relnamespace, relname) from pg_catalog.pg_class"
        " where relkind not in ('t', 'i') and relnamespace <> to_regnamespace(quote_ident($1))"
        " and relnamespace <> 'pg_toast'::regnamespace order by 1)",
        schema,
    )
    return names


async def test_two_instances_are_independent(rows: Rows, schema: str, another: str) -> None:
    """Side by side in one database: each has its own version, jobs and keys (F98)."""
    await migrate.migrate(rows.conn, another)
    theirs = Rows(rows.conn, type(rows.store)(another))

    mine_id = await rows.waiting(idempotency_key="a")
    their_id = await theirs.waiting(idempotency_key="a")

    assert (mine_id, their_id) == (1, 1)
    assert (await rows.count(), await theirs.count()) == (1, 1)
    assert await catalogue(rows.conn, another) == await catalogue(rows.conn, schema)


# -- many at once ------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", ["read committed", "serializable"])
async def test_ten_at_once_on_an_empty_database(
    empty_conn: Conn, schema: str, connect: Callable[[], Awaitable[Conn]], default: str
) -> None:
    """Each migration is applied by one of them, whichever comes first, in each of ten rounds (F89)."""
    conns = [await connect() for _ in range(10)]
    for conn in conns:
        await conn.execute(f"set default_transaction_isolation = '{default}'")

    for _ in range(10):
        done = await asyncio.gather(*(migrate.migrate(conn, schema) for conn in conns))

        assert sum(len(each) for each in done) == len(RELEASES)
        assert [tuple(row) for row in await applied(empty_conn, schema)] == RELEASES
        await empty_conn.execute(f"drop schema {quote_identifier(schema)} cascade")


PROCESS = """
import asyncio, sys, asyncpg
from jobq.db.migrate import migrate

async def main(dsn, schema):
    conn = await asyncpg.connect(dsn)
    print("ready", flush=True)
    sys.stdin.readline()
    print(len(await migrate(conn, schema)))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_four_processes_at_once(empty_conn: Conn, schema: str, dsn: str) -> None:
    """The lock is the database's, not the process's."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROCESS, dsn, schema, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"

    said = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))

    assert sum(int(out) for out, _ in said) == len(RELEASES)
    assert [tuple(row) for row in await applied(empty_conn, schema)] == RELEASES


# -- as a script -------------------------------------------------------------------------------------


def statements(script: str) -> list[str]:
    """Cut a script as psql does: at semicolons outside of quotes and comments."""
    token = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(\$\w*\$).*?\1|;|[^-'\"$;]+|.", re.S)
    parts = [""]
    for match in token.finditer(script):
        if match[0] == ";":
            parts.append("")
        else:
            parts[-1] += match[0]
    assert not parts[-1].strip()
    return parts[:-1]


async def test_the_script_makes_the_same_schema(conn: Conn, schema: str, another: str) -> None:
    """What `jobq migrate --sql` prints, run statement by statement, equals what `jobq migrate` does."""
    for statement in statements(as_sql(another)):
        await conn.execute(statement)

    assert await catalogue(conn, another) == await catalogue(conn, schema)
    assert await applied(conn, another) == await applied(conn, schema)
    assert not conn.is_in_transaction()
    assert await migrate.migrate(conn, another) == []


async def test_the_script_of_an_upgrade_begins_after_the_version(
    conn: Conn, schema: str, next_migration: Callable[[str], None]
) -> None:
    """It applies what is missing, and only that."""
    next_migration("create table @schema@.next (id int);")

    for statement in statements(as_sql(schema, after=NEWEST)):
        await conn.execute(statement)

    assert [tuple(row) for row in await applied(conn, schema)] == [*RELEASES, (NEWEST + 1, "next")]
    assert await conn.fetchval(render("select count(*) from @schema@.next", schema)) == 0
    assert "create schema" not in as_sql(schema, after=NEWEST)


async def test_the_script_of_nothing_has_no_transaction(schema: str) -> None:
    """An instance that is up to date gets a script that changes nothing."""
    assert "begin" not in as_sql(schema, after=migrate.newest_version())


# -- when it cannot be -------------------------------------------------------------------------------


async def test_a_lock_that_is_not_to_be_had_changes_nothing(
    conn: Conn, schema: str, other: Conn, next_migration: Callable[[str], None]
) -> None:
    """After `lock_timeout` the migration gives way to whoever it would hold up, and says so (F88)."""
    next_migration("create table @schema@.next (id int); alter table @schema@.job add column next int;")
    before = await catalogue(conn, schema)

    async with other.transaction():
        await other.execute(render("lock table @schema@.job in access share mode", schema))
        with pytest.raises(
            MigrationError, match=rf"{NEWEST + 1:04} \(next\) did not get its lock within 0.1 s .* run it again"
        ):
            await migrate.migrate(conn, schema, lock_timeout_s=0.1)

    assert await catalogue(conn, schema) == before
    assert await current_version(conn, schema) == NEWEST
    assert await conn.fetchval("show lock_timeout") == "0"
    assert [done.name for done in await migrate.migrate(conn, schema, lock_timeout_s=0.1)] == ["next"]


async def test_a_statement_that_fails_changes_nothing(
    conn: Conn, schema: str, next_migration: Callable[[str], None]
) -> None:
    """F90: a migration is one transaction: the tables that it made before the error are gone."""
    next_migration("create table @schema@.next (id int); select 1 / 0;")
    before = await catalogue(conn, schema)

    with pytest.raises(DatabaseError, match="division by zero"):
        await migrate.migrate(conn, schema)

    assert await catalogue(conn, schema) == before
    assert await current_version(conn, schema) == NEWEST


async def test_what_came_before_a_failure_stays(
    empty_conn: Conn, schema: str, next_migration: Callable[[str], None]
) -> None:
    """F90: each migration commits by itself, and the next run goes on where this one stopped."""
    next_migration("select 1 / 0;")
    with pytest.raises(DatabaseError):
        await migrate.migrate(empty_conn, schema)
    assert await current_version(empty_conn, schema) == NEWEST
    next_migration("create table @schema@.next (id int);")

    done = await migrate.migrate(empty_conn, schema)

    assert [each.version for each in done][-1] == NEWEST + 1
    assert await current_version(empty_conn, schema) == NEWEST + 1


# -- the version -------------------------------------------------------------------------------------


async def test_a_missing_instance_names_the_command(empty_conn: Conn, schema: str) -> None:
    """With the schema's option, quoted, unless it is the default's; nothing is created."""
    with pytest.raises(SchemaError, match="has no jobq in it: run `jobq migrate --schema") as caught:
        await check_version(empty_conn, schema)
    with pytest.raises(SchemaError, match="run `jobq migrate` once"):
        await check_version(empty_conn, "jobq")

    assert shlex.quote(schema) in str(caught.value)
    assert await catalogue(empty_conn, schema) == []


async def test_an_older_schema_names_the_command(
    conn: Conn, schema: str, next_migration: Callable[[str], None]
) -> None:
    """Code that is newer than its schema does not start (F91)."""
    next_migration("select 1;")

    with pytest.raises(SchemaError, match=f"is at version {NEWEST}, this code needs {NEWEST + 1}: run `jobq migrate"):
        await check_version(conn, schema)


async def test_a_newer_schema_is_a_warning(conn: Conn, schema: str) -> None:
    """Older code goes on working, and is told; migrating from it does nothing (F91)."""
    await conn.execute(render("insert into @schema@.migration (version, name) values (77, 'later')", schema))

    warning = await check_version(conn, schema)

    assert warning is not None
    assert f"is at version 77, newer than this code's {NEWEST}: upgrade jobq soon" in warning
    assert await migrate.migrate(conn, schema) == []


async def test_the_right_version_says_nothing(conn: Conn, schema: str) -> None:
    """Neither an error nor a warning."""
    assert await check_version(conn, schema) is None


# -- the files ---------------------------------------------------------------------------------------


def test_an_applied_migration_is_not_changed() -> None:
    """Its file has the content that production has applied."""
    found = {
        entry.name: hashlib.sha256(entry.read_bytes()).hexdigest()
        for entry in FOLDER.iterdir()
        if entry.name.endswith(".sql")
    }

    assert {name: found[name] for name in FROZEN} == FROZEN
    assert found.keys() == FROZEN.keys()


def test_versions_have_no_gaps() -> None:
    """Every file in the folder is a migration, numbered from 1 on."""
    names = sorted(entry.name for entry in FOLDER.iterdir() if entry.name.endswith(".sql"))

    assert [migration.version for migration in migrate.migrations()] == list(range(1, len(names) + 1))


def test_only_migrations_run_ddl() -> None:
    """No statement of workers and producers creates, changes or locks an object (F88)."""
    found = {}
    for entry in files("jobq.db").joinpath("sql").iterdir():
        code = re.sub(r"--[^\n]*|'[^']*'", "", entry.read_text("utf-8"))
        if entry.name != "create_instance.sql" and (words := DDL.findall(code)):
            found[entry.name] = words

    assert found == {}
