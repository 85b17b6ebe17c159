"""One real PostgreSQL for the whole run, and a schema of its own for each test.

The server is the embedded one, or that of `JOBQ_TEST_PGBIN` (a directory with `initdb` and `postgres`), or
whatever `JOBQ_TEST_DSN` points at. The schemas' name needs quoting and the search path is empty, so that a
statement that forgets either fails everywhere.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest
from hypothesis import settings

from jobq import Queue
from jobq.db import migrate
from jobq.db.statements import quote_identifier, render
from jobq.db.store import Store
from jobq.embedded import temporary

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

settings.register_profile("jobq", deadline=None)
settings.load_profile("jobq")

_numbers = count(1)

FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "200"}
"""Nothing here survives the run, and no test crashes this server on purpose."""


@pytest.fixture(scope="session")
def dsn() -> Iterator[str]:
    """The DSN of the server of this run."""
    if given := os.environ.get("JOBQ_TEST_DSN"):
        yield given
        return
    pgbin = os.environ.get("JOBQ_TEST_PGBIN")
    with temporary(settings=FAST, binaries=Path(pgbin) if pgbin else None) as server:
        yield server.dsn


@pytest.fixture
def schema() -> str:
    """The name of this test's schema."""
    return f"Jobs {os.getpid()} \"x-{next(_numbers)}'"


@pytest.fixture
async def connect(dsn: str) -> AsyncIterator[Callable[[], Awaitable[Conn]]]:
    """Open connections, with an empty search path, that are closed after the test."""
    opened: list[Conn] = []

    async def connect() -> Conn:
        opened.append(await asyncpg.connect(dsn, server_settings={"search_path": "", "application_name": "test"}))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.terminate()


@pytest.fixture
async def empty_conn(connect: Callable[[], Awaitable[Conn]], schema: str) -> AsyncIterator[Conn]:
    """A connection to a database in which this test's schema does not exist yet."""
    conn = await connect()
    yield conn
    dropping = await connect()
    await dropping.execute("set lock_timeout = '5s'")  # a failed test may have left a lock
    await dropping.execute(f"drop schema if exists {quote_identifier(schema)} cascade")


@pytest.fixture
async def conn(empty_conn: Conn, schema: str) -> Conn:
    """A connection to the database, with jobq installed in this test's schema."""
    await migrate.migrate(empty_conn, schema)
    return empty_conn


@pytest.fixture
def sql(schema: str) -> Callable[[str], str]:
    """Put this test's schema into a statement: `sql("select * from @schema@.job")`."""
    return lambda text: render(text, schema)


@pytest.fixture
def store(conn: Conn, schema: str) -> Store:
    """The statements of this test's schema."""
    return Store(schema)


@pytest.fixture
async def queue(conn: Conn, dsn: str, schema: str) -> AsyncIterator[Queue]:
    """A queue without handlers on this test's schema."""
    async with Queue(dsn, schema=schema) as queue:
        yield queue
