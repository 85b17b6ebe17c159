"""Workers killed and the database stopped, again and again, while orders come: then every job is accounted for.

`--kills` times a worker that runs jobs is killed with SIGKILL and another one started, `--restarts` times the server is
stopped, fast or immediate in turn, and started again; for every tenth kill a worker is frozen until others have taken
its jobs, and thawed. The producer enqueues a job for each order, in the order's transaction, and rolls one transaction
in ten back. The seed decides the orders, and after how many of them what happens.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from benchmarks.chaos_account import Account, take
from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.restartable import RestartableServer
from benchmarks.workers import REPOSITORY
from jobq import Queue
from jobq.errors import DatabaseError

WORKERS = 4
A_TRANSACTION = 20
AHEAD = 4000
"""Orders that may be unfinished before the producer waits: so the kills are spread over the whole run."""
KILLS_A_FREEZE = 10
LEASE_S = 3
WORKER = ("--concurrency", "50", "--worker-lease", f"{LEASE_S}s", "--log-level", "error")
END_WITHIN_S = 120.0
"""After the last fault. What is not finished then is lost."""
SHOWN = 5
TAIL_BYTES = 20_000

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


async def measure(options: argparse.Namespace) -> Report:
    """Run until `--jobs` orders are committed and their jobs are finished."""
    with RestartableServer() as server, TemporaryDirectory() as directory:
        ledger = Ledger(Path(directory, "ledger"))
        chaos = Chaos(server, ledger, options)
        await chaos.run()
        conn = await asyncpg.connect(server.dsn)
        account = await take(conn, ledger.lines())
        figures = {
            "jobs": account.jobs,
            "lost": len(account.lost),
            "ghosts": len(account.ghosts),
            "duplicates": account.duplicates,
            "unexplained_duplicates": len(account.unexplained),
            "late_writes_accepted": len(account.late),
            "condemned": len(account.condemned),
            "kills": chaos.kills,
            "freezes": chaos.freezes,
            "restarts": chaos.restarts,
            "seconds": chaos.seconds,
        }
        parameters: dict[str, object] = {"seed": options.seed, "workers": WORKERS, "worker_lease_s": LEASE_S}
        runs = {name: [float(value)] for name, value in figures.items()}
        report = await make_report(conn, "chaos", runs, parameters, _offenders(account))
        await conn.close()
    return report


def _offenders(account: Account) -> str:
    wrong: dict[str, list[object]] = {
        "lost": [*account.lost],
        "ghosts": [*account.ghosts],
        "unexplained": [*account.unexplained],
        "late": [*account.late],
    }
    return "; ".join(f"{len(found)} {name}: {found[:SHOWN]}" for name, found in wrong.items() if found)


class Ledger:
    """The file that the handlers write to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[str]:
        """Return everything that was written."""
        return self.path.read_text().splitlines()

    def tail(self) -> bytes:
        """Return what was written last: every worker that is at work has a part in it."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - TAIL_BYTES))
            return file.read()


class Chaos:
    """One run: a producer, workers, and what happens to them."""

    def __init__(self, server: RestartableServer, ledger: Ledger, options: argparse.Namespace) -> None:
        self._server = server
        self._ledger = ledger
        self._jobs = options.jobs
        self._draw = random.Random(options.seed)
        self._faults = sorted(
            [(self._draw.randrange(options.jobs), "kill") for _ in range(options.kills)]
            + [(self._draw.randrange(options.jobs), "freeze") for _ in range(options.kills // KILLS_A_FREEZE)]
            + [(self._draw.randrange(options.jobs), "restart") for _ in range(options.restarts)]
        )
        self._next_fault_after = 0
        self._committed = 0
        self._workers: list[asyncio.subprocess.Process] = []
        self._up = asyncio.Event()
        self.kills = 0
        self.freezes = 0
        self.restarts = 0
        self.seconds = 0.0

    async def run(self) -> None:
        """Produce and break, then let the workers finish."""
        began = time.monotonic()
        conn = await asyncpg.connect(self._server.dsn)
        await fresh_schema(conn)
        await conn.execute("create table chaos_order (id bigint primary key)")
        await conn.execute("create table chaos_effect (job_id bigint not null, fence int not null)")
        await conn.close()
        self._up.set()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._end_workers)
            for _ in range(WORKERS):
                self._workers.append(await self._start_worker())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._produce())
                tasks.create_task(self._break(tasks))
            await self._wait_finished()
        self.seconds = time.monotonic() - began

    # -- orders --------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        os.environ["CHAOS_LEDGER"] = str(self._ledger.path)  # for the handlers' module, whose handlers never run here
        from benchmarks.chaos_app import MIX

        kinds = [handler for share, handler in MIX for _ in range(share)]
        order_id = 0
        async with Queue(self._server.dsn, schema=SCHEMA) as queue:
            while self._committed < self._jobs:
                size = min(A_TRANSACTION, self._jobs - self._committed)
                orders = range(order_id, order_id + size)
                order_id += size
                roll_back = self._draw.random() < 0.1
                jobs = [self._draw.choice(kinds).bind(order_id=order) for order in orders]
                try:
                    pool = await queue.pool()
                    async with pool.acquire() as conn, conn.transaction():
                        await conn.executemany("insert into chaos_order (id) values ($1)", [(one,) for one in orders])
                        await queue.enqueue_many(jobs, conn=conn)
                        if roll_back:
                            raise RolledBackError
                except RolledBackError:
                    continue
                except AWAY:
                    # The commit may have arrived or not: the order's row says which.
                    await self._count_committed()
                    continue
                self._committed += size
                await self._wait_caught_up()

    async def _count_committed(self) -> None:
        self._committed = int(str(await self._ask("select count(*) from chaos_order")))

    async def _wait_caught_up(self) -> None:
        """Wait while too much is unfinished, or while a fault is due and there is still something for it to hit."""
        while True:
            is_fault_due = self._committed > self._next_fault_after
            if not is_fault_due and self._committed % 1000 >= A_TRANSACTION:
                return
            unfinished = int(str(await self._ask(f"select count(*) from {SCHEMA}.job")))
            if unfinished < (A_TRANSACTION if is_fault_due else AHEAD):
                return
            await asyncio.sleep(0.01)

    async def _ask(self, question: str) -> object:
        """Ask the server, however often it goes away."""
        while True:
            await self._up.wait()
            try:
                conn = await asyncpg.connect(self._server.dsn, timeout=5)
                try:
                    return await conn.fetchval(question, timeout=30)
                finally:
                    conn.terminate()
            except AWAY:
                await asyncio.sleep(0.05)

    # -- faults --------------------------------------------------------------------------------------

    async def _break(self, thawing: asyncio.TaskGroup) -> None:
        for after, fault in self._faults:
            self._next_fault_after = after
            while self._committed < after:  # noqa: ASYNC110 - progress is what sets the time
                await asyncio.sleep(0.005)
            match fault:
                case "kill":
                    await self._kill_worker()
                case "freeze":
                    thawing.create_task(self._freeze_worker(await self._pick_worker()))
                case _:
                    await self._restart_server()
        self._next_fault_after = self._jobs

    async def _kill_worker(self) -> None:
        worker = await self._pick_worker()
        worker.kill()
        await worker.wait()
        self.kills += 1
        self._workers[self._workers.index(worker)] = await self._start_worker()

    async def _freeze_worker(self, worker: asyncio.subprocess.Process) -> None:
        worker.send_signal(signal.SIGSTOP)
        self.freezes += 1
        await asyncio.sleep(3 * LEASE_S)
        if worker.returncode is None:
            worker.send_signal(signal.SIGCONT)

    async def _pick_worker(self) -> asyncio.subprocess.Process:
        """Choose one that has started a job: to hit one that is still starting would prove nothing."""
        while not (at_work := self._at_work()):  # noqa: ASYNC110 - it is other processes that change
            await asyncio.sleep(0.01)
        return self._draw.choice(at_work)

    def _at_work(self) -> list[asyncio.subprocess.Process]:
        """Return the workers that the last lines of the ledger tell of."""
        tail = self._ledger.tail()
        ended = [worker.returncode for worker in self._workers if worker.returncode is not None]
        if ended:
            raise RuntimeError(f"workers ended by themselves, with exit codes {ended}")
        return [worker for worker in self._workers if f" {worker.pid}\n".encode() in tail]

    async def _restart_server(self) -> None:
        how = ("fast", "immediate")[self.restarts % 2]
        self._up.clear()
        await asyncio.to_thread(self._server.restart, how)
        self._up.set()
        self.restarts += 1

    async def _start_worker(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jobq.cli.main", "run", "benchmarks.chaos_app:queue", *WORKER),
            cwd=REPOSITORY,
            env={**os.environ, "JOBQ_DSN": self._server.dsn, "CHAOS_LEDGER": str(self._ledger.path)},
            stderr=asyncio.subprocess.DEVNULL,
        )

    # -- the end -------------------------------------------------------------------------------------

    async def _wait_finished(self) -> None:
        give_up_at = time.monotonic() + END_WITHIN_S
        unfinished = f"select exists (select from {SCHEMA}.job)"
        while time.monotonic() < give_up_at and await self._ask(unfinished):  # noqa: ASYNC110 - it is the database
            await asyncio.sleep(0.2)

    async def _end_workers(self) -> None:
        for worker in self._workers:
            if worker.returncode is None:
                worker.terminate()
        for worker in self._workers:
            await worker.wait()
