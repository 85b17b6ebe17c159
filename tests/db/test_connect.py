"""What a connection leaves on the server, and what the errors of a pooler mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq import ConflictError, PreparedStatementError, Queue
from jobq.db import connect as connections
from jobq.db.connect import Link, connect, translated
from jobq.db.store import Store

if TYPE_CHECKING:
    from tests.conftest import Conn

NAMES = "select count(*) from pg_prepared_statements"


@pytest.mark.parametrize(("prepared", "names"), [(True, True), (False, False)])
async def test_a_link_names_statements_only_if_it_may(
    store: Store, dsn: str, monkeypatch: pytest.MonkeyPatch, prepared: bool, names: bool
) -> None:
    """F10: a name would outlast its transaction; without any there is no plan to be discarded either."""
    monkeypatch.setattr(connections, "PLAN_AGE_S", 0.0)
    link = Link(dsn, role="claims", deadline_s=10.0, prepared_statements=prepared)

    for _ in range(3):
        async with link.lend() as conn:
            await store.purge_sleepers(conn, 10)
            await store.list_lapsed_workers(conn)
            found = await conn.fetchval(NAMES)

    assert (found > 0) is names
    await link.close()


async def test_a_command_names_no_statement(store: Store, dsn: str) -> None:
    """It runs each once."""
    conn = await connect(dsn, role="cli")

    await store.list_lapsed_workers(conn)

    assert await conn.fetchval(NAMES) == 0
    await conn.close()


@pytest.fixture
async def unprepared(conn: Conn, dsn: str, schema: str) -> AsyncIterator[Queue]:
    """A queue behind a pooler, or so it thinks."""
    async with Queue(dsn, schema=schema, prepared_statements=False) as queue:
        yield queue


async def test_the_own_pool_names_no_statement_and_touches_no_session(unprepared: Queue) -> None:
    """F10, F12: a reset would be done to whichever server connection comes next."""
    pool = await unprepared.pool()
    await unprepared.enqueue("work", {}, queue="default")

    async with pool.acquire() as conn:
        names = await conn.fetchval(NAMES)
        await conn.execute("set work_mem = '1MB'")
    async with pool.acquire() as conn:
        kept = await conn.fetchval("show work_mem")

    assert (names, kept) == (0, "1MB")


async def test_a_connection_comes_back_to_the_own_pool_without_its_failed_transaction(unprepared: Queue) -> None:
    """F11: also one that a handler began by itself and left in failure."""
    pool = await unprepared.pool()

    async with pool.acquire() as conn:
        await conn.execute("begin")
        with pytest.raises(asyncpg.PostgresError):
            await conn.execute("select 1 / 0")
    async with pool.acquire() as conn:
        left = conn.is_in_transaction()

    assert not left
    assert (await unprepared.enqueue("work", {}, queue="default")).created


@pytest.mark.parametrize("kind", [asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError])
async def test_a_lost_prepared_statement_is_a_conflict_with_the_remedy(kind: type[asyncpg.PostgresError]) -> None:
    """The driver's own hint, which names an option that is not ours, is not in it."""
    error = kind("prepared statement is not as it was")
    error.hint = "NOTE: pgbouncer"

    ours = translated(error)

    assert isinstance(ours, PreparedStatementError)
    assert isinstance(ours, ConflictError)
    assert "prepared statement is not as it was" in str(ours)
    assert "set prepared_statements=False (JOBQ_PREPARED_STATEMENTS=off)" in str(ours)
    assert "NOTE" not in str(ours)


async def test_an_enqueue_that_meets_a_taken_name_says_what_to_set(conn: Conn, queue: Queue) -> None:
    """On a connection of the caller: what is set for it is the caller's."""
    await conn.execute("deallocate all")
    named = conn._get_unique_id("stmt")  # type: ignore[attr-defined]  # what the next one will follow
    following = f"__asyncpg_stmt_{int(named.removeprefix('__asyncpg_stmt_').removesuffix('__'), 16) + 1:x}__"
    await conn.execute(f"prepare {following} as select 1")

    with pytest.raises(PreparedStatementError, match="statement_cache_size=0"):
        await queue.enqueue("work", {}, queue="default", conn=conn, autocommit=True)
