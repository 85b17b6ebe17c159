"""The workers of a `chaos` run, and what happens to them and to the server: kills, freezes, stops and restarts.

The seed decides after how many orders what happens. Victims are workers that are at work: to hit one that is still
starting would prove nothing.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec

from benchmarks.chaos_books import Ledger
from benchmarks.chaos_orders import Orders
from benchmarks.chaos_recovery import Fault, Outage
from benchmarks.restartable import RestartableServer
from benchmarks.workers import REPOSITORY

WORKERS = 4
KILLS_A_FREEZE = 10
KILLS_A_STOP = 10
LEASE_S = 3
GRACE_S = 5
OPTIONS = (
    *("--concurrency", "50", "--log-level", "error"),
    *("--worker-lease", f"{LEASE_S}s", "--grace", f"{GRACE_S}s"),
)
FROZEN_S = 3.0 * LEASE_S
SPARED_S = 4.0 * LEASE_S
"""The eldest worker that runs is spared until it is so old: only who lives for a lease can see another one lapse."""
RESTARTS = (("fast", 0.0), ("immediate", LEASE_S + 1.0))
"""In turn. The second hangs before it dies, until the leases have lapsed and the workers have cancelled their handlers:
a connection that breaks then puts its own error in the place of a cancellation."""
LATEST = 0.99
"""No fault after this share of the orders: the work that comes after the last one shows that it was overcome."""
AT_WORK_WITHIN_S = 60.0
STOPPED_WITHIN_S = 120.0
"""What runs on for longer is killed, and its exit code tells."""


class What(StrEnum):
    """What may happen."""

    KILL = "kill"
    FREEZE = "freeze"
    STOP = "stop"
    RESTART = "restart"
    RESTART_AND_STOP = "restart and stop"


class Planned(msgspec.Struct, frozen=True, order=True):
    """What is to happen after so many orders are committed."""

    after: int
    what: What


class Stopped(msgspec.Struct, frozen=True):
    """How long a worker took to end after SIGTERM, and how it ended."""

    seconds: float
    code: int


def plan(jobs: int, kills: int, restarts: int, draw: random.Random) -> list[Planned]:
    """Say what happens when: for every tenth kill also a freeze and a stop, the first stops during the restarts."""
    stops = kills // KILLS_A_STOP
    together = min(stops, restarts)
    counts = {
        What.KILL: kills,
        What.FREEZE: kills // KILLS_A_FREEZE,
        What.STOP: stops - together,
        What.RESTART: restarts - together,
        What.RESTART_AND_STOP: together,
    }
    return sorted(
        Planned(draw.randrange(int(jobs * LATEST)), what) for what, count in counts.items() for _ in range(count)
    )


class Faults:
    """Keeps `WORKERS` workers running while it does to them what is planned."""

    def __init__(self, server: RestartableServer, ledger: Ledger, orders: Orders, draw: random.Random) -> None:
        self._server = server
        self._ledger = ledger
        self._orders = orders
        self._draw = draw
        self._workers: list[asyncio.subprocess.Process] = []
        self._born_at: dict[int, float] = {}
        self._frozen: set[int] = set()
        self.of_workers: list[Fault] = []
        self.outages: list[Outage] = []
        self.stopped: list[Stopped] = []
        self.kills = 0
        self.freezes = 0

    async def start_workers(self) -> None:
        """Start them."""
        for _ in range(WORKERS):
            self._workers.append(await self._start_worker())

    async def end_workers(self) -> None:
        """Stop all that run, and wait for them."""
        for worker in self._workers:
            if worker.returncode is None:
                worker.terminate()
        for worker in self._workers:
            await _wait_ended(worker)

    async def run(self, planned: Sequence[Planned]) -> None:
        """Do everything that is planned, each at its time."""
        async with asyncio.TaskGroup() as later:
            for one in planned:
                self._orders.fault_due_after = one.after
                await self._orders.wait_committed(one.after)
                match one.what:
                    case What.KILL:
                        await self._kill()
                    case What.FREEZE:
                        worker = await self._pick_running()
                        self._freeze(worker)
                        later.create_task(self._thaw(worker))
                    case What.STOP:
                        worker = await self._replace(await self._pick_running())
                        later.create_task(self._stop(worker))
                    case What.RESTART:
                        await self._restart()
                    case What.RESTART_AND_STOP:
                        worker = await self._replace(await self._pick_running())
                        later.create_task(self._stop(worker, after_s=self._draw.uniform(0, 0.5)))
                        await self._restart()
            self._orders.fault_due_after = sys.maxsize

    # -- to workers ----------------------------------------------------------------------------------

    async def _kill(self) -> None:
        worker = await self._pick()
        worker.kill()
        self.of_workers.append(Fault(worker.pid, time.time(), is_final=True))
        self.kills += 1
        await self._replace(worker)
        await worker.wait()

    def _freeze(self, worker: asyncio.subprocess.Process) -> None:
        worker.send_signal(signal.SIGSTOP)
        self._frozen.add(worker.pid)
        self.of_workers.append(Fault(worker.pid, time.time(), is_final=False))
        self.freezes += 1

    async def _thaw(self, worker: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(FROZEN_S)
        self._frozen.remove(worker.pid)
        if worker.returncode is None:
            worker.send_signal(signal.SIGCONT)

    async def _stop(self, worker: asyncio.subprocess.Process, *, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        began = time.monotonic()
        worker.terminate()
        code = await _wait_ended(worker)
        self.stopped.append(Stopped(time.monotonic() - began, code))
        self.of_workers.append(Fault(worker.pid, time.time(), is_final=True))

    async def _pick_running(self) -> asyncio.subprocess.Process:
        """Choose one that is not frozen, as `_pick` does."""
        return await self._pick(besides=self._frozen)

    async def _pick(self, *, besides: Collection[int] = ()) -> asyncio.subprocess.Process:
        """Choose a worker that is at work. Raises `RuntimeError` if there is none, or if one has ended by itself."""
        give_up_at = time.monotonic() + AT_WORK_WITHIN_S
        while True:
            ended = [worker.returncode for worker in self._workers if worker.returncode is not None]
            if ended:
                raise RuntimeError(f"workers ended by themselves, with exit codes {ended}")
            pids = self._ledger.last_pids() - {*besides, self._spared()}
            if at_work := [one for one in self._workers if one.pid in pids]:
                return self._draw.choice(at_work)
            if time.monotonic() >= give_up_at:
                raise RuntimeError(f"no worker was at work for {AT_WORK_WITHIN_S:g} s")
            await asyncio.sleep(0.01)

    def _spared(self) -> int | None:
        running = [worker.pid for worker in self._workers if worker.pid not in self._frozen]
        eldest = min(running, key=lambda pid: self._born_at[pid], default=None)
        if eldest is None or time.monotonic() - self._born_at[eldest] >= SPARED_S:
            return None
        return eldest

    async def _replace(self, worker: asyncio.subprocess.Process) -> asyncio.subprocess.Process:
        """Have another one run in the place of *worker*, which is returned, and is the caller's to end."""
        self._workers[self._workers.index(worker)] = await self._start_worker()
        return worker

    async def _start_worker(self) -> asyncio.subprocess.Process:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jobq.cli.main", "run", "benchmarks.chaos_app:queue", *OPTIONS),
            cwd=REPOSITORY,
            env={**os.environ, "JOBQ_DSN": self._server.dsn, "CHAOS_LEDGER": str(self._ledger.path)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._born_at[worker.pid] = time.monotonic()
        return worker

    # -- to the server -------------------------------------------------------------------------------

    async def _restart(self) -> None:
        how, hang_s = RESTARTS[len(self.outages) % len(RESTARTS)]
        began_at = time.time()
        self._orders.server_is_up.clear()
        await asyncio.to_thread(self._server.restart, how, hang_s=hang_s)
        self._orders.server_is_up.set()
        self.outages.append(Outage(began_at, time.time()))


async def _wait_ended(worker: asyncio.subprocess.Process) -> int:
    """Wait for a worker that was told to stop, and kill it if it does not. Returns its exit code."""
    try:
        return await asyncio.wait_for(worker.wait(), STOPPED_WITHIN_S)
    except TimeoutError:
        worker.kill()
        return await worker.wait()
