"""How long from an enqueue to the start of the handler: one job a transaction, at given rates whatever the answers.

From the server's clock in the enqueue, so with its commit, to the first line of the handler, in another process on the
same machine. With notifications, and with polling only; and on an idle system, one job after the other. `lag_ms` is how
late the enqueues themselves were begun, p99: it is no part of the wait, but where it is large, the load came in gusts.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.open_loop import CLIENTS, send
from benchmarks.pick_up import percentile, read_waits, stamp_file
from benchmarks.report import Report, make_report
from benchmarks.stamps import STAMPS, stamp
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

RATES = (10, 100, 1000, 2000)
POLLED_RATES = (100, 1000, 2000)
WARM_UP_S = 2.0
"""Not counted: a loop that sleeps is first told, or polls once a second, and only then polls quickly."""
LASTS_S = 15.0
ONE_BY_ONE = 200


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Measure each rate `--runs` times, each in a new schema with a new worker."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        void = void or await _one_run(conn, dsn, runs, "idle", rate=None, notify=True)
        for rate in RATES:
            void = void or await _one_run(conn, dsn, runs, f"rates.{rate}", rate=rate, notify=True)
        for rate in POLLED_RATES:
            void = void or await _one_run(conn, dsn, runs, f"polling_only.{rate}", rate=rate, notify=False)
    parameters: dict[str, object] = {
        "clients": CLIENTS,
        "warm_up_s": WARM_UP_S,
        "lasts_s": LASTS_S,
        "idle_jobs": ONE_BY_ONE,
    }
    report = await make_report(conn, "latency", runs, parameters, void)
    await conn.close()
    return report


async def _one_run(
    conn: Conn, dsn: str, runs: dict[str, list[float]], name: str, *, rate: int | None, notify: bool
) -> str:
    """Add one run's figures to *runs*, under *name*. Returns why it is void, or nothing."""
    await fresh_schema(conn)
    late_ms: list[float] = []
    with stamp_file() as stamps:
        async with (
            running_worker(conn, dsn, app="stamps", environment={STAMPS: str(stamps)}),
            Queue(dsn, schema=SCHEMA) as queue,
        ):
            await asyncio.sleep(2)  # until the worker sleeps
            if rate is None:
                await _one_by_one(conn, queue)
            else:
                late_ms = await send(dsn, queue, rate, WARM_UP_S + LASTS_S, notify=notify)
            await until(conn, "select not exists (select from {}.job)")
        waits, void = await read_waits(conn, stamps)
    if void:
        return f"{name}: {void}"
    warming = 0 if rate is None else round(WARM_UP_S * rate)
    waits_ms = [wait.ms for wait in waits[warming:]]
    figures = {"p50_ms": percentile(waits_ms, 50), "p99_ms": percentile(waits_ms, 99), "max_ms": max(waits_ms)}
    if late_ms:
        figures["lag_ms"] = percentile(late_ms[warming:], 99)
    for figure, value in figures.items():
        runs.setdefault(f"{name}.{figure}", []).append(value)
    return ""


async def _one_by_one(conn: Conn, queue: Queue) -> None:
    for _ in range(ONE_BY_ONE):
        await queue.enqueue(stamp.bind())
        await until(conn, "select not exists (select from {}.job)")
        await asyncio.sleep(random.uniform(0.05, 0.1))
