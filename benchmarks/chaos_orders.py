"""The producer of a `chaos` run: orders and their jobs, committed together or not at all, whatever the server does.

Each transaction inserts orders and enqueues a job for each; one in ten is rolled back. An order's row is what says that
its transaction has committed, where no answer does.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import asyncpg

from benchmarks.database import SCHEMA
from jobq import Queue
from jobq.errors import DatabaseError

A_TRANSACTION = 20
ROLLED_BACK = 0.1
AHEAD = 1000
"""Orders that may be unfinished before the producer waits: the faults are spread over the whole run, and what was taken
back waits behind no more than these."""
LOOK_EVERY = 500
DUE_S = 0.02
"""Between two transactions while a fault is due, so that orders are left for it if its victim is long in coming."""
END_WITHIN_S = 120.0
"""After the last fault. What is not finished then is lost."""

AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    DatabaseError,
)


class RolledBackError(Exception):
    """Ends a transaction that is to leave nothing."""


class Orders:
    """Produces until *jobs* orders are committed. *seed* decides what each transaction holds."""

    def __init__(self, dsn: str, jobs: int, seed: int) -> None:
        self._dsn = dsn
        self._jobs = jobs
        self._draw = random.Random(seed)
        self.committed = 0
        self.fault_due_after = 0
        """The producer waits here for the next fault while there is something for it to hit."""
        self.server_is_up = asyncio.Event()

    async def create_tables(self) -> None:
        """Make the tables of the application."""
        conn = await asyncpg.connect(self._dsn)
        await conn.execute("create table chaos_order (id bigint primary key)")
        await conn.execute("create table chaos_effect (job_id bigint not null, fence int not null)")
        await conn.close()
        self.server_is_up.set()

    async def produce(self, ledger: Path) -> None:
        """Commit orders and their jobs."""
        os.environ["CHAOS_LEDGER"] = str(ledger)  # for the handlers' module, whose handlers never run here
        from benchmarks.chaos_app import MIX

        kinds = [handler for share, handler in MIX for _ in range(share)]
        order_id = 0
        async with Queue(self._dsn, schema=SCHEMA) as queue:
            while self.committed < self._jobs:
                orders = range(order_id, order_id + min(A_TRANSACTION, self._jobs - self.committed))
                order_id = orders.stop
                rolls_back = self._draw.random() < ROLLED_BACK
                jobs = [self._draw.choice(kinds).bind(order_id=order) for order in orders]
                try:
                    pool = await queue.pool()
                    async with pool.acquire() as conn, conn.transaction():
                        await conn.executemany("insert into chaos_order (id) values ($1)", [(one,) for one in orders])
                        await queue.enqueue_many(jobs, conn=conn)
                        if rolls_back:
                            raise RolledBackError
                except RolledBackError:
                    continue
                except AWAY:
                    # The commit may have arrived or not.
                    self.committed = int(str(await self._ask("select count(*) from chaos_order")))
                    continue
                self.committed += len(orders)
                await self._wait_caught_up()

    async def wait_committed(self, orders: int) -> None:
        """Wait until so many orders are committed."""
        while self.committed < orders:  # noqa: ASYNC110 - progress is what sets the time
            await asyncio.sleep(0.005)

    async def wait_finished(self) -> None:
        """Wait until every job has an end, but not for ever."""
        give_up_at = time.monotonic() + END_WITHIN_S
        unfinished = f"select exists (select from {SCHEMA}.job)"
        while time.monotonic() < give_up_at and await self._ask(unfinished):  # noqa: ASYNC110 - it is the database
            await asyncio.sleep(0.2)

    async def _wait_caught_up(self) -> None:
        """Wait while too much is unfinished, or while a fault is due and there is still something for it to hit."""
        while True:
            is_fault_due = self.committed > self.fault_due_after
            if not is_fault_due and self.committed % LOOK_EVERY >= A_TRANSACTION:
                return
            if is_fault_due:
                await asyncio.sleep(DUE_S)
            unfinished = int(str(await self._ask(f"select count(*) from {SCHEMA}.job")))
            if unfinished < (A_TRANSACTION if is_fault_due else AHEAD):
                return
            await asyncio.sleep(0.01)

    async def _ask(self, question: str) -> object:
        """Ask the server, however often it goes away."""
        while True:
            await self.server_is_up.wait()
            try:
                conn = await asyncpg.connect(self._dsn, timeout=5)
                try:
                    return await conn.fetchval(question, timeout=30)
                finally:
                    conn.terminate()
            except AWAY:
                await asyncio.sleep(0.05)
