"""The database of a benchmark: an embedded PostgreSQL with durable defaults, thrown away afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from jobq.db.migrate import migrate
from jobq.db.statements import quote_identifier
from jobq.embedded import temporary

SCHEMA = "jobq_bench"

SETTINGS = {"shared_buffers": "2GB", "max_wal_size": "8GB"}
"""What any server of this size has set. `fsync` and `synchronous_commit` stay on."""


@contextmanager
def database(dsn: str | None, pgbin: Path | None = None) -> Iterator[str]:
    """Give the DSN of the server to measure on: *dsn*, or one of our own, of the programs in *pgbin* or embedded."""
    if dsn is not None:
        yield dsn
        return
    with temporary(settings=SETTINGS, binaries=pgbin) as server:
        yield server.dsn


async def fresh_schema(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Install jobq anew in the benchmark's schema."""
    await conn.execute(f"drop schema if exists {quote_identifier(SCHEMA)} cascade")
    await migrate(conn, SCHEMA)
    await conn.execute("checkpoint")
