"""How long from an enqueue to the start of the handler: one job a transaction, at given rates whatever the answers.

From the server's clock in the enqueue, so with its commit, to the first line of the handler, in another process on the
same machine. With notifications, and with polling only; and on an idle system, one job after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.stamps import STAMPS, read_stamps, stamp
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

CLIENTS = 16
RATES = (10, 100, 1000, 2000)
POLLED_RATES = (100, 1000, 2000)
WARM_UP_S = 2.0
"""Not counted: a loop that sleeps is first told, or polls once a second, and only then polls quickly."""
LASTS_S = 15.0
ONE_BY_ONE = 200

DONE = f"select id, extract(epoch from enqueued_at)::float8 from {SCHEMA}.done order by id"


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
    with TemporaryDirectory(prefix="jobq-latency-") as directory:
        stamps = Path(directory, "stamps")
        async with (
            running_worker(conn, dsn, app="stamps", environment={STAMPS: str(stamps)}),
            Queue(dsn, schema=SCHEMA) as queue,
            asyncpg.create_pool(dsn, min_size=CLIENTS, max_size=CLIENTS) as pool,
        ):
            await asyncio.sleep(2)  # until the worker sleeps
            if rate is None:
                await _one_by_one(conn, queue)
            else:
                await _at_rate(queue, pool, rate, notify=notify)
            await until(conn, "select not exists (select from {}.job)")
            rows = await conn.fetch(
                f"select id, extract(epoch from enqueued_at)::float8 from {SCHEMA}.done order by id"
            )
        started = read_stamps(stamps)
    if started.keys() != {row[0] for row in rows}:
        return f"{name}: {len(rows)} jobs are done, {len(started)} have started"
    counted = rows if rate is None else rows[round(WARM_UP_S * rate) :]
    waits_ms = [(started[job_id] - enqueued_at) * 1000 for job_id, enqueued_at in counted]
    percentiles = quantiles(waits_ms, n=100, method="inclusive")
    for figure, value in (("p50_ms", percentiles[49]), ("p99_ms", percentiles[98]), ("max_ms", max(waits_ms))):
        runs.setdefault(f"{name}.{figure}", []).append(value)
    return ""


async def _one_by_one(conn: Conn, queue: Queue) -> None:
    for _ in range(ONE_BY_ONE):
        await queue.enqueue(stamp.bind())
        await until(conn, "select not exists (select from {}.job)")
        await asyncio.sleep(random.uniform(0.05, 0.1))


async def _at_rate(queue: Queue, pool: asyncpg.Pool[asyncpg.Record], rate: int, *, notify: bool) -> None:
    began = time.monotonic()
    numbers = iter(range(round(rate * (WARM_UP_S + LASTS_S))))

    async def enqueue() -> None:
        for number in numbers:
            if (left_s := began + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(left_s)
            async with pool.acquire() as conn, conn.transaction():
                await queue.enqueue(stamp.bind(), conn=conn, notify=notify)

    async with asyncio.TaskGroup() as clients:
        for _ in range(CLIENTS):
            clients.create_task(enqueue())
