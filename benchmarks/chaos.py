"""Workers killed and the database stopped, again and again, while orders come: then every job is accounted for.

`--kills` times a worker that runs jobs is killed with SIGKILL and another one started. `--restarts` times the server is
stopped, in turn fast, and immediate after a hang, and started again. For every tenth kill a worker is frozen until
others have taken its jobs, and thawed, and one is told to stop, the first of them while the server is down. The
producer enqueues a job for each order, in the order's transaction, and rolls one transaction in ten back. The seed
decides the orders, and after how many of them what happens.

Then each job has to have one end, and each call of a handler but its job's last a record of jobq's that says why there
was another. How long the longest recovery and the longest stop took is held against their limits, and one worker drains
jobs that do nothing before and after it all.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import asyncpg
import msgspec

from benchmarks.chaos_account import FAILED, REASONS, Account, draw_up
from benchmarks.chaos_books import Ledger, read_lives
from benchmarks.chaos_faults import GRACE_S, LEASE_S, WORKERS, Faults, plan
from benchmarks.chaos_orders import Orders
from benchmarks.chaos_rate import drain_rates
from benchmarks.chaos_recovery import Recovery, recoveries
from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.restartable import RestartableServer

if TYPE_CHECKING:
    from benchmarks.workers import Conn

RECOVERY_LIMIT_S = LEASE_S + 15
STOP_LIMIT_S = GRACE_S + 10
STOP_CODES = (0, 3)
"""Drained; and drained with jobs handed back or left to their lease."""
SHOWN = 5

FIRST_DONE = f"""
    select extract(epoch from min(finished_at))::float8
    from {SCHEMA}.done
    where claimed_at > to_timestamp($1)
"""


class Findings(msgspec.Struct):
    """What a run came to. Rates are jobs a second, one for each drain."""

    account: Account
    faults: Faults
    seconds: float
    recovered: list[Recovery]
    rates_before: list[float]
    rates_after: list[float]


async def measure(options: argparse.Namespace) -> Report:
    """Run until `--jobs` orders are committed and their jobs are finished."""
    with RestartableServer() as server, TemporaryDirectory() as directory:
        found = await _run(server, Ledger(Path(directory, "ledger")), options)
        parameters: dict[str, object] = {
            "seed": options.seed,
            "workers": WORKERS,
            "worker_lease_s": LEASE_S,
            "grace_s": GRACE_S,
        }
        conn = await asyncpg.connect(server.dsn)
        report = await make_report(conn, "chaos", _figures(found), parameters, "; ".join(_wrongs(found)))
        await conn.close()
    return report


async def _run(server: RestartableServer, ledger: Ledger, options: argparse.Namespace) -> Findings:
    conn = await asyncpg.connect(server.dsn)
    await fresh_schema(conn)
    await conn.close()
    before = await drain_rates(server.dsn, options.jobs)
    began = time.monotonic()
    faults = await _break(server, ledger, options)
    seconds = time.monotonic() - began
    conn = await asyncpg.connect(server.dsn)
    account = await draw_up(read_lives(conn, ledger.calls()))
    recovered = recoveries(account.interrupted, faults.of_workers, faults.outages)
    recovered += await _first_done(conn, faults)
    await conn.close()
    after = await drain_rates(server.dsn, options.jobs)
    return Findings(account, faults, seconds, recovered, before, after)


async def _break(server: RestartableServer, ledger: Ledger, options: argparse.Namespace) -> Faults:
    """Produce and break, then let the workers finish. Returns what was broken."""
    draw = random.Random(options.seed)
    planned = plan(options.jobs, options.kills, options.restarts, draw)
    orders = Orders(server.dsn, options.jobs, options.seed)
    faults = Faults(server, ledger, orders, draw)
    await orders.create_tables()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(faults.end_workers)
        await faults.start_workers()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(orders.produce(ledger.path))
            tasks.create_task(faults.run(planned))
        await orders.wait_finished()
    return faults


async def _first_done(conn: Conn, faults: Faults) -> list[Recovery]:
    """Return how long after each restart the first job was done that was claimed after it."""
    done_at = [(one.ended_at, await conn.fetchval(FIRST_DONE, one.ended_at)) for one in faults.outages]
    return [Recovery(at - ended_at, "a restart") for ended_at, at in done_at if at is not None]


def _figures(found: Findings) -> dict[str, list[float]]:
    account, faults = found.account, found.faults
    figures = {
        "jobs": account.jobs,
        "lost": len(account.lost),
        "ghosts": len(account.ghosts),
        "duplicates": account.duplicates,
        **{f"by_reason.{reason}": account.by_reason[reason] for reason in (FAILED, *REASONS.values())},
        "unexplained_duplicates": len(account.unexplained),
        "late_writes_accepted": len(account.late),
        "condemned": len(account.condemned),
        "kills": faults.kills,
        "freezes": faults.freezes,
        "stops": len(faults.stopped),
        "restarts": len(faults.outages),
        "seconds": found.seconds,
        "recovery_max_s": max((one.seconds for one in found.recovered), default=0.0),
        "stop_max_s": max((one.seconds for one in faults.stopped), default=0.0),
        "rate_ratio": median(found.rates_after) / median(found.rates_before),
    }
    rates = {"rate_before_per_s": found.rates_before, "rate_after_per_s": found.rates_after}
    return {name: [float(value)] for name, value in figures.items()} | rates


def _wrongs(found: Findings) -> list[str]:
    """Say what makes the run void, or nothing."""
    account, stopped = found.account, found.faults.stopped
    slow = sorted((one for one in found.recovered if one.seconds > RECOVERY_LIMIT_S), reverse=True)
    late_s = sorted((round(one.seconds, 1) for one in stopped if one.seconds > STOP_LIMIT_S), reverse=True)
    wrongs: dict[str, list[int] | list[float] | list[str]] = {
        "lost": account.lost,
        "ghosts": account.ghosts,
        "unexplained": account.unexplained,
        "late": account.late,
        f"recoveries took longer than {RECOVERY_LIMIT_S} s": [f"{one.seconds:.1f} s, {one.what}" for one in slow],
        f"stops took longer than {STOP_LIMIT_S} s": late_s,
        "stopped workers ended with other codes": [one.code for one in stopped if one.code not in STOP_CODES],
    }
    return [f"{len(those)} {what}: {those[:SHOWN]}" for what, those in wrongs.items() if those]
