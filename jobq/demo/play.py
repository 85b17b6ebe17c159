"""The play, act by act: orders come in, a worker is killed, a few jobs fail for good and are redriven after the fix."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jobq.core.job import JobId
from jobq.db.connect import connect
from jobq.db.migrate import migrate
from jobq.db.overview import Overview
from jobq.db.reports import DeadFilter, DeadLetter, Reports
from jobq.demo.account import Account, draw_up
from jobq.demo.mail_server import MailServer
from jobq.demo.shop import ORDERS, PaymentRefusedError, place_order, queue
from jobq.demo.stage import Scene, Stage
from jobq.demo.workers import BEAT_S, LEASE_S, SLOTS, WorkerProcess
from jobq.settings import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from asyncpg import Record
    from asyncpg.pool import Pool

DATABASE = "jobq_demo"
TELLERS = 4
"""Who takes orders at the same time."""

LOOK_EVERY_S = 0.25
UNKNOWN_MAILBOXES = 5


class Play:
    """One performance. *orders* are placed, a tenth of them rolled back; *seed* decides everything left to chance.

    *log* is the file for what the workers say.
    """

    def __init__(self, stage: Stage, *, orders: int, seed: int, log: Path) -> None:
        self._stage = stage
        self._log = log
        self._orders = orders
        self._seed = seed
        self._chance = random.Random(seed)
        self._rolled_back_numbers = set(self._chance.sample(range(orders), orders // 10))
        committed = [number for number in range(orders) if number not in self._rolled_back_numbers]
        unknown = self._chance.sample(committed, min(UNKNOWN_MAILBOXES, len(committed)))
        self._mail = MailServer({customer(number) for number in unknown}, self._chance)
        self._workers: list[WorkerProcess] = []
        self._committed = 0
        self._rolled_back = 0

    async def perform(self, dsn: str) -> Account:
        """Play on the server of *dsn*, in a database of its own that is dropped at the end."""
        async with AsyncExitStack() as stack:
            own_dsn = await stack.enter_async_context(_own_database(dsn))
            queue.use_dsn(own_dsn)
            await stack.enter_async_context(queue)
            await stack.enter_async_context(self._mail.running())
            pool = await queue.pool()
            await pool.execute(ORDERS)
            stack.push_async_callback(self._discard_workers)
            self._stage.tell(f"seed {self._seed}")
            self._stage.tell(f"two workers, {SLOTS} jobs at once each; lease {LEASE_S:g} s, a beat every {BEAT_S:g} s")
            for _ in range(2):
                await self._start_worker(own_dsn, pool)
            return await self._act(own_dsn, pool)

    async def _act(self, dsn: str, pool: Pool[Record]) -> Account:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(pool))
            self._stage.tell(f"{self._orders:,} orders come in, each in one transaction with its receipt's job")
            placing = group.create_task(self._place_orders(pool))
            killed, in_flight = await self._kill_one(dsn, pool)
            await placing
            await _until(lambda: self._no_job_is_left(pool))
            letters = await self._show_dead_letters(pool)
            redriven = await self._mend_and_redrive(pool, letters)
            await self._stop_workers()
            watching.cancel()
        return draw_up(
            committed={row[0] for row in await pool.fetch("select id from orders")},
            rolled_back=self._rolled_back,
            deliveries=self._mail.deliveries,
            killed_pid=killed.pid,
            in_flight_at_kill=in_flight,
            dead=len(letters),
            redriven=redriven,
            unfinished=await pool.fetchval(
                "select (select count(*) from jobq.job) + (select count(*) from jobq.dead_letter)"
            ),
            seconds=time.monotonic() - began,
        )

    # -- the acts ------------------------------------------------------------------------------------

    async def _place_orders(self, pool: Pool[Record]) -> None:
        lasts_s = min(max(self._orders / 50, 2.0), 20.0)
        began = time.monotonic()
        numbers = iter(range(self._orders))

        async def take_orders() -> None:
            for number in numbers:
                await asyncio.sleep(began + number / self._orders * lasts_s - time.monotonic())
                can_pay = number not in self._rolled_back_numbers
                try:
                    async with pool.acquire() as conn:
                        await place_order(conn, customer(number), cents=100 + number, can_pay=can_pay)
                except PaymentRefusedError:
                    self._rolled_back += 1
                else:
                    self._committed += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(TELLERS):
                group.create_task(take_orders())
        self._stage.tell(f"all orders are in: {self._committed:,} committed, {self._rolled_back:,} rolled back")

    async def _kill_one(self, dsn: str, pool: Pool[Record]) -> tuple[WorkerProcess, int]:
        victim = self._chance.choice(self._workers)
        share = self._chance.uniform(0.3, 0.5)

        async def is_in_the_middle() -> bool:
            return len(self._mail.orders) >= share * self._orders and await victim.running() > 0

        async def is_bereft() -> bool:
            return await victim.running() == 0

        await _until(is_in_the_middle)
        in_flight = await victim.kill()
        self._stage.tell(f"kill -9 of worker {victim.pid} with {in_flight} in flight; another starts")
        await self._start_worker(dsn, pool)
        await _until(is_bereft)
        self._stage.tell(f"the lease of worker {victim.pid} has lapsed: its jobs run elsewhere")
        return victim, in_flight

    async def _show_dead_letters(self, pool: Pool[Record]) -> list[DeadLetter]:
        async with pool.acquire() as conn:
            letters = await Reports(DEFAULT_SCHEMA).list_dead(conn, DeadFilter(), limit=100)
        self._stage.tell(f"{len(letters)} jobs failed for good; `jobq dead list` shows the dead letters:")
        for letter in letters:
            self._stage.tell(f"  {letter.id} {letter.kind}: {letter.error_message}")
        return letters

    async def _mend_and_redrive(self, pool: Pool[Record], letters: list[DeadLetter]) -> int:
        self._mail.mend()
        report = await queue.redrive(*(JobId(letter.id) for letter in letters))
        self._stage.tell(f"the mailboxes are mended; `jobq dead redrive` makes {report.redriven} ready again")
        await _until(lambda: self._no_job_is_left(pool))
        return report.redriven

    async def _stop_workers(self) -> None:
        codes = [await worker.stop() for worker in self._workers if not worker.was_killed]
        self._stage.tell(f"SIGTERM: the workers drain and end; exit codes {', '.join(map(str, codes))}")

    # -- behind the scenes ---------------------------------------------------------------------------

    async def _no_job_is_left(self, pool: Pool[Record]) -> bool:
        return not await pool.fetchval("select exists (select from jobq.job)")

    async def _start_worker(self, dsn: str, pool: Pool[Record]) -> None:
        self._workers.append(await WorkerProcess.start(dsn, pool, smtp_port=self._mail.port, log=self._log))

    async def _discard_workers(self) -> None:
        for worker in self._workers:
            await worker.discard()

    async def _watch(self, pool: Pool[Record]) -> None:
        overview = Overview(DEFAULT_SCHEMA)
        while True:
            async with pool.acquire() as conn:
                standing = await overview.look(conn)
            mail = next((one for one in standing.queues if one.queue == "mail"), None)
            self._stage.show(
                Scene(
                    orders=self._orders - len(self._rolled_back_numbers),
                    committed=self._committed,
                    rolled_back=self._rolled_back,
                    receipts=len(self._mail.orders),
                    busy=self._mail.busy,
                    ready=mail.ready.count if mail else 0,
                    running=mail.running.count if mail else 0,
                    retrying=mail.scheduled.count if mail else 0,
                    dead=mail.dead.count if mail else 0,
                    workers=[(worker.pid, not worker.was_killed) for worker in self._workers],
                )
            )
            await asyncio.sleep(LOOK_EVERY_S)


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    while not await is_so():  # noqa: ASYNC110 - it is the database that changes
        await asyncio.sleep(0.02)


def customer(number: int) -> str:
    """Return the address of who places the order of this number."""
    return f"customer-{number}@example.com"


@asynccontextmanager
async def _own_database(dsn: str) -> AsyncIterator[str]:
    """Give a new database on the server of *dsn*, so that the play meets nobody's jobs; drop it at the end."""
    conn = await connect(dsn, role="demo")
    try:
        await conn.execute(f"drop database if exists {DATABASE} with (force)")  # of a demo that was killed
        await conn.execute(f"create database {DATABASE}")
        try:
            own_dsn = urlsplit(dsn)._replace(path=f"/{DATABASE}").geturl()
            own = await connect(own_dsn, role="demo")
            try:
                await migrate(own, DEFAULT_SCHEMA)
            finally:
                await own.close()
            yield own_dsn
        finally:
            await conn.execute(f"drop database {DATABASE} with (force)")
    finally:
        await conn.close()
