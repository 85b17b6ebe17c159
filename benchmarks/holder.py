"""Somebody else's session that holds a snapshot: while it does, vacuum can remove nothing that died meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from benchmarks.database import SCHEMA

HOLDERS = {
    "reading": f"select count(*) from {SCHEMA}.worker",
    "writing": "select pg_current_xact_id()",
}
"""What the session does first: look at a table, or take a transaction id as the first write does."""


@asynccontextmanager
async def held(dsn: str, holder: str | None) -> AsyncIterator[None]:
    """Hold the snapshot of a session of `HOLDERS` during the block, or none."""
    if holder is None:
        yield
        return
    conn = await asyncpg.connect(dsn)
    async with conn.transaction(isolation="repeatable_read"):
        await conn.fetchval(HOLDERS[holder])
        yield
    await conn.close()
