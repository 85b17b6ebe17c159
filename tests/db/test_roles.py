"""Each role of `jobq roles` can do what it is for, on the real statements, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq import ConfigurationError, DatabaseError
from jobq.db import migrate, roles
from jobq.db.facts import FactReports
from jobq.db.incidents import Incidents
from jobq.db.overview import Overview
from jobq.db.recurring import RecurringStore
from jobq.db.reports import Reports
from jobq.db.roles import ROLES, roles_sql
from jobq.db.statements import quote_identifier, render
from jobq.db.store import Store
from tests.db.rights import ALERTS, CHANGES, EVERYBODY, FORGERIES, GRANTED, QUESTIONS, RIGHTS, Actor, Work, granted
from tests.db.rows import Rows

if TYPE_CHECKING:
    from tests.conftest import Conn


@pytest.fixture
async def prefix(empty_conn: Conn, schema: str) -> AsyncIterator[str]:
    """What the names of this test's roles begin with; they are dropped after the test, with what they own."""
    prefix = f"{schema[:40]} "
    yield prefix
    await empty_conn.execute("reset role")
    names = [prefix + role for role in (*ROLES, "dba", "stranger")]
    for name in await empty_conn.fetchval("select array(select rolname from pg_roles where rolname = any($1))", names):
        await empty_conn.execute(f"drop owned by {quote_identifier(name)} cascade")
        await empty_conn.execute(f"drop role {quote_identifier(name)}")


@pytest.fixture
async def rows(conn: Conn, store: Store, schema: str, prefix: str) -> Rows:
    """The rows of an instance whose roles are there."""
    await conn.execute(roles_sql(schema, prefix=prefix))
    return Rows(conn, store)


async def act(connect: Callable[[], Awaitable[Conn]], prefix: str, role: str, rows: Rows) -> Actor:
    """Return a role at a connection of its own."""
    conn = await connect()
    await conn.execute(f"set role {quote_identifier(prefix + role)}")
    return Actor(conn, rows)


async def refused_to(actor: Actor, work: Mapping[str, Work]) -> set[str]:
    """Return what PostgreSQL refuses to *actor* for want of a right; whatever else is raised is a failure."""
    refused = set()
    for name, one in work.items():
        try:
            await one(actor)
        except (DatabaseError, asyncpg.PostgresError) as error:
            if not isinstance(error.__cause__ or error, asyncpg.InsufficientPrivilegeError):
                raise
            refused.add(name)
    return refused


def forgery(text: str) -> Work:
    """Return the work of running a statement."""
    return lambda actor: actor.conn.execute(render(text, actor.store.schema))


@pytest.mark.parametrize("role", sorted(EVERYBODY))
async def test_a_role_runs_its_statements_and_no_others(
    role: str, rows: Rows, prefix: str, connect: Callable[[], Awaitable[Conn]]
) -> None:
    """Each method of the store, the incidents, the reports and the overview passes or is refused, as the tables say."""
    await rows.waiting(idempotency_key="taken")
    actor = await act(connect, prefix, role, rows)
    table = {**CHANGES, **ALERTS, **QUESTIONS}

    refused = await refused_to(actor, {name: work for name, (_, work) in table.items()})

    assert refused == {name for name, (roles, _) in table.items() if role not in roles}


@pytest.mark.parametrize("role", sorted(EVERYBODY))
async def test_a_role_forges_nothing(
    role: str, rows: Rows, prefix: str, connect: Callable[[], Awaitable[Conn]]
) -> None:
    """What none of jobq's statements does is refused too."""
    actor = await act(connect, prefix, role, rows)

    refused = await refused_to(actor, {name: forgery(text) for name, (_, text) in FORGERIES.items()})

    assert refused == {name for name, (roles, _) in FORGERIES.items() if role not in roles}


def test_there_is_a_decision_about_each_statement() -> None:
    """A new method fails here until somebody has said who may call it."""
    asked = {name for one in (Reports, Overview, FactReports) for name in vars(one) if not name.startswith("_")}
    changed = {name for one in (Store, RecurringStore) for name in vars(one) if not name.startswith("_")}
    told = {name for name in vars(Incidents) if not name.startswith("_")}

    assert ALERTS.keys() == told
    assert {name.partition(",")[0] for name in CHANGES} == changed
    assert {name.partition(",")[0] for name in QUESTIONS} == asked | {"check_version"}


async def test_there_is_a_decision_about_each_object(rows: Rows, schema: str, prefix: str) -> None:
    """A new table, column right or function fails here until somebody has said what each role may do with it."""
    assert await granted(rows.conn, schema, prefix) == RIGHTS


async def test_a_second_run_changes_nothing(rows: Rows, schema: str, prefix: str) -> None:
    """And what somebody granted beside it is taken back."""
    before = sorted(await rows.conn.fetch(GRANTED, schema), key=str)
    await rows.run(f"grant delete on @schema@.job to {quote_identifier(prefix + 'producer')}")

    await rows.conn.execute(roles_sql(schema, prefix=prefix))

    assert sorted(await rows.conn.fetch(GRANTED, schema), key=str) == before


async def test_a_stranger_may_nothing(rows: Rows, prefix: str, connect: Callable[[], Awaitable[Conn]]) -> None:
    """Not even what PUBLIC may by default, call a function; but NOTIFY and one's own settings are free to all."""
    await rows.conn.execute(f"create role {quote_identifier(prefix + 'stranger')}")
    actor = await act(connect, prefix, "stranger", rows)

    refused = await refused_to(actor, {name: work for name, (_, work) in CHANGES.items()})

    assert refused == CHANGES.keys() - {"try_listener", "limit_transaction"}


async def test_before_the_first_migration_it_says_what_to_do(
    empty_conn: Conn, schema: str, prefix: str, connect: Callable[[], Awaitable[Conn]]
) -> None:
    """The owner, who may not create schemas, then migrates, and what he makes is nobody's until the second run."""
    said: list[str] = []
    empty_conn.add_log_listener(lambda _, message: said.append(f"{message.message} {message.hint}"))
    owner = await connect()

    await empty_conn.execute(roles_sql(schema, prefix=prefix))
    await owner.execute(f"set role {quote_identifier(prefix + 'owner')}")
    await migrate.migrate(owner, schema)
    first = {(name, role) for name, role, _ in await empty_conn.fetch(GRANTED, schema) if role is not None}
    await empty_conn.execute(roles_sql(schema, prefix=prefix))

    assert [
        one
        for one in said
        if f"is at version 0, this script is for version {migrate.newest_version()}" in one and "run this script" in one
    ]
    assert {role.removeprefix(prefix) for _, role in first} == {"reader"}
    assert not any("(" in name for name, _ in first)
    granted = {(name, role) for name, role, _ in await empty_conn.fetch(GRANTED, schema) if role is not None}
    assert ("job", f"{prefix}worker") in granted


async def test_an_upgrade_as_the_owner_leads_to_the_same_rights(
    empty_conn: Conn, schema: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each older version: the roles, then what is installed, migrated on and granted anew (F91)."""
    everything = migrate.migrations()

    for version in range(1, len(everything)):
        await empty_conn.execute(f"drop schema if exists {quote_identifier(schema)} cascade")
        await empty_conn.execute(roles_sql(schema, prefix=prefix))
        await empty_conn.execute(f"set role {quote_identifier(prefix + 'owner')}")
        monkeypatch.setattr(migrate, "migrations", lambda version=version: everything[:version])
        await migrate.migrate(empty_conn, schema)
        monkeypatch.setattr(migrate, "migrations", lambda: everything)
        await migrate.migrate(empty_conn, schema)
        await empty_conn.execute("reset role")
        await empty_conn.execute(roles_sql(schema, prefix=prefix))

        assert await granted(empty_conn, schema, prefix) == RIGHTS


@pytest.mark.parametrize("away", [-1, 1])
async def test_the_script_of_another_version_is_refused_and_changes_nothing(
    rows: Rows, schema: str, prefix: str, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    """F91: run before the migration, or by a release of before, it would leave the workers without rights."""
    before = await granted(rows.conn, schema, prefix)
    version = migrate.newest_version()
    monkeypatch.setattr(roles, "newest_version", lambda: version + away)

    with pytest.raises(asyncpg.RaiseError, match=f"is at version {version}, .* for version {version + away}"):
        await rows.conn.execute(roles_sql(schema, prefix=prefix))
    await rows.conn.execute("rollback")

    assert await granted(rows.conn, schema, prefix) == before == RIGHTS


async def test_it_needs_no_superuser(
    empty_conn: Conn, dsn: str, schema: str, prefix: str, connect: Callable[[], Awaitable[Conn]]
) -> None:
    """A role that may create roles and schemas is enough, as in the databases of a cloud."""
    dba = quote_identifier(prefix + "dba")
    database = quote_identifier(await empty_conn.fetchval("select current_database()"))
    await empty_conn.execute(f"create role {dba} login createrole; grant create on database {database} to {dba}")
    conn = await connect()
    await conn.execute(f"set session authorization {dba}")

    await conn.execute(roles_sql(schema, prefix=prefix))
    await migrate.migrate(conn, schema)
    await conn.execute(roles_sql(schema, prefix=prefix))

    found = {name for name, role, _ in await empty_conn.fetch(GRANTED, schema) if role == f"{prefix}worker"}
    assert "job" in found
    await conn.execute("reset session authorization")


@pytest.mark.parametrize("prefix", ["pg_", "a$b", "a\nb", "x" * 56, "\0"])
def test_an_impossible_prefix_is_refused(prefix: str) -> None:
    """Before a DBA pipes it anywhere."""
    with pytest.raises(ConfigurationError, match="prefix of the roles"):
        roles_sql("jobq", prefix=prefix)
