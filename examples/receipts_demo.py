"""The receipts from end to end, in a database of its own: what `jobq demo` runs around the worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from examples.mail_server import read_mails
from examples.receipts import queue

DATABASE = "jobq_demo"


@dataclass(frozen=True)
class Tally:
    """What is in the database and what came in by mail, after the worker is through."""

    committed: int
    delivered: int
    duplicates: int
    missing: int
    wrong: int

    @property
    def matches(self) -> bool:
        """Whether there is exactly one receipt for each order, and no other."""
        return self.committed > 0 and not (self.duplicates or self.missing or self.wrong)


@asynccontextmanager
async def own_database(dsn: str) -> AsyncIterator[str]:
    """Give a new database on the server of *dsn*, so that the demo meets nobody's jobs; drop it at the end."""
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute(f"drop database if exists {DATABASE}")  # of a demo that was killed
        await conn.execute(f"create database {DATABASE}")
        try:
            yield dsn.replace("/postgres?", f"/{DATABASE}?")
        finally:
            await conn.execute(f"drop database {DATABASE} with (force)")
    finally:
        await conn.close()


async def tally(mbox: Path) -> Tally:
    """Compare the orders in the database with the receipts in *mbox*."""
    async with queue:
        pool = await queue.pool()
        orders = {row["id"] for row in await pool.fetch("select id from orders")}
    mails = read_mails(mbox)
    receipts = {int(str(mail["Subject"]).rpartition(" ")[2]) for mail in mails}
    return Tally(
        committed=len(orders),
        delivered=len(receipts),
        duplicates=len(mails) - len(receipts),
        missing=len(orders - receipts),
        wrong=len(receipts - orders),
    )
