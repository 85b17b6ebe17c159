"""A producer that enqueues through every fault, and a file in which it says what it meant to do and what came of it.

Each enqueue has a token of its own, which the payload carries: an id may be given out again after a crash, if nobody
who had it has committed. Two producers may share the file, if their tokens begin differently.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jobq import Queue
from jobq.db.connect import connect, translated
from jobq.db.statements import render
from jobq.errors import DatabaseError
from tests.faults.ledger import now, until

if TYPE_CHECKING:
    from asyncpg import Connection, Record

BY_SQL = "select id from @schema@.enqueue('errand', $1)"

CONNECT_LIMIT_S = 1.0
ANSWER_LIMIT_S = 3.0


class Fate(StrEnum):
    """What came of an enqueue, as far as its producer can know."""

    INTENDED = "intended"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"
    """The answer to its commit was lost: the job may exist or not."""


class Entry(msgspec.Struct, frozen=True):
    """One line of the producer's file. *at* is by the ledger's clock."""

    token: str
    fate: Fate
    at: float


class Producer:
    """Enqueues jobs of the kind `errand` in transactions of its own; each fourth one it rolls back.

    Each fifth goes by the SQL function, as from a trigger or another language. Its tokens are *prefix* and a number.
    """

    def __init__(
        self,
        path: Path,
        *,
        dsn: str,
        schema: str = "jobq",
        prefix: str = "",
        every_s: float = 0.02,
        step_s: float = 0.02,
    ) -> None:
        self.path = path
        self._dsn = dsn
        self._queue = Queue(dsn, schema=schema)
        self.every_s = every_s
        """The pause between two enqueues."""
        self.step_s = step_s
        """Errands take 0 to 9 times as long."""
        self._prefix = prefix
        self._count = 0
        path.touch()

    def entries(self) -> list[Entry]:
        """Return what it has written so far."""
        return [msgspec.json.decode(line, type=Entry) for line in self.path.read_bytes().splitlines()]

    def fates(self) -> dict[str, Entry]:
        """Return the last word on each token."""
        return {entry.token: entry for entry in self.entries()}

    def committed(self) -> int:
        """Return how many enqueues have committed."""
        return sum(entry.fate is Fate.COMMITTED for entry in self.entries())

    def note(self, token: str, fate: Fate) -> None:
        """Write down what came of an enqueue. Whoever enqueues other jobs than errands notes it, too."""
        with self.path.open("a") as file:
            file.write(json.dumps({"token": token, "fate": fate, "at": now()}) + "\n")

    async def commits(self, more: int, *, limit_s: float = 30.0) -> None:
        """Wait for so many more commits from now on."""
        wanted = self.committed() + more
        await until(self.committed, lambda found: found >= wanted, limit_s=limit_s, what=f"{more} more enqueues")

    @asynccontextmanager
    async def producing(self) -> AsyncIterator[None]:
        """Enqueue while the block runs."""
        task = asyncio.create_task(self._produce())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _produce(self) -> None:
        conn: Connection[Record] | None = None
        try:
            while True:
                try:
                    if conn is None or conn.is_closed():
                        conn = await connect(
                            self._dsn, role="producer", timeout=CONNECT_LIMIT_S, command_timeout=ANSWER_LIMIT_S
                        )
                    await self._enqueue(conn)
                except Exception as error:
                    if not isinstance(error, DatabaseError) and translated(error) is None:
                        raise
                    if conn is not None:
                        conn.terminate()
                    conn = None
                await asyncio.sleep(self.every_s)
        finally:
            if conn is not None:
                conn.terminate()

    async def _enqueue(self, conn: Connection[Record]) -> None:
        self._count += 1
        token, rolls_back = f"{self._prefix}{self._count}", self._count % 4 == 3
        self.note(token, Fate.INTENDED)
        transaction = conn.transaction()
        fate = Fate.ROLLED_BACK  # whoever has not said commit has not committed
        try:
            await transaction.start()
            seconds, writes = self.step_s * (self._count % 10), self._count % 3 == 0
            payload = {"token": token, "seconds": seconds, "writes": writes}
            if self._count % 5 == 0:
                await conn.execute(render(BY_SQL, self._queue.schema), json.dumps(payload))
            else:
                await self._queue.enqueue("errand", payload, queue="default", conn=conn)
            if rolls_back:
                await transaction.rollback()
            else:
                fate = Fate.UNKNOWN
                await transaction.commit()
                fate = Fate.COMMITTED
        finally:
            self.note(token, fate)
