"""Each statement of the hot path has one sensible plan: with stale statistics, generic or custom, on an old server too.

The statistics are those of the empty tables, as after a quiet night, and autovacuum does not correct them. Required is
that no statement scans a whole table or index that may be long, and that each touches few pages. Ten thousand jobs are
ready here; `test_plans_million.py` and `test_plans_empty.py` ask the same of a million and of none.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq.db import migrate
from jobq.db.statements import quote_identifier, render
from tests.db.plan_cases import Bound, Case, bounds, cases
from tests.db.plans import (
    FRESH,
    MODES,
    STALE,
    buffers,
    explain,
    filled,
    indexes,
    prepare,
    run,
    scanned,
)

if TYPE_CHECKING:
    from tests.conftest import Conn

CASES, BOUNDS = cases(50), bounds(50)
"""To write about five jobs in a hundred, a scan of the table would be right."""

Connect = Callable[[], Awaitable["Conn"]]


@pytest.fixture(scope="module")
def full(dsn: str) -> Iterator[dict[str, str]]:
    """Two schemas with long tables, by what their statistics are: those of empty tables, or true."""
    scripts = {"stale": (STALE, filled(10_000)), "fresh": (filled(10_000), FRESH)}
    schemas = {statistics: f'Plans "{statistics} {os.getpid()}' for statistics in scripts}

    async def fill() -> None:
        conn = await asyncpg.connect(dsn)
        for statistics, schema in schemas.items():
            await migrate.migrate(conn, schema)
            for script in scripts[statistics]:
                await conn.execute(render(script, schema))
        await conn.close()

    async def drop() -> None:
        conn = await asyncpg.connect(dsn)
        for schema in schemas.values():
            await conn.execute(f"drop schema {quote_identifier(schema)} cascade")
        await conn.close()

    asyncio.run(fill())
    yield schemas
    asyncio.run(drop())


@pytest.mark.parametrize("statistics", ["stale", "fresh"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=[case.statement for case in CASES])
async def test_a_statement_uses_its_index(
    connect: Connect, full: dict[str, str], case: Case, mode: str, statistics: str
) -> None:
    """No scan of a table from end to end, and no other index, which would be walked in the same way (F73)."""
    conn = await connect()
    prepared = await prepare(conn, full[statistics], mode, case.statement)

    plan = await explain(conn, "costs off", prepared, case.arguments)

    assert scanned(plan) == set()
    assert indexes(plan) == case.indexes


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
async def test_a_statement_touches_few_pages(connect: Connect, full: dict[str, str], bound: Bound, mode: str) -> None:
    """A few for each lane and some twenty for each job, however many wait, are scheduled or are dead (F73)."""
    conn = await connect()

    plan = await run(conn, full["stale"], mode, bound.statement, bound.arguments, before=bound.before)

    assert plan["Actual Rows"] == bound.rows
    assert buffers(plan) < bound.pages
