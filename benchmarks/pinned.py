"""What a snapshot that another session holds does to a drain: vacuum can remove nothing, and dead rows pile up.

`--jobs` jobs are drained by one worker process without such a session, with one that only reads, and with one that has
written. The ratios are to the first.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import noop
from benchmarks.throughput import DRAINED_S, NOTE
from benchmarks.workers import run_until_empty
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

HOLD = {
    "free": None,
    "reading": f"select count(*) from {SCHEMA}.worker",
    "writing": "select pg_current_xact_id()",
}


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Drain with each kind of session, `--runs` times, each in a new schema."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        rates: dict[str, float] = {}
        for name, statement in HOLD.items():
            await fresh_schema(conn)
            async with _held(dsn, statement):
                rates[name] = await _drain(conn, dsn, options)
            done = await conn.fetchval(f"select count(*) from {SCHEMA}.done")
            void = void or ("" if done == options.jobs else f"{name}: {done} of {options.jobs} jobs are done")
            runs.setdefault(f"drain_per_s_{name}", []).append(rates[name])
        for name in ("reading", "writing"):
            runs.setdefault(f"ratio_{name}", []).append(rates[name] / rates["free"])
    report = await make_report(conn, "pinned", runs, {"jobs": options.jobs, "slots": options.slots}, void)
    await conn.close()
    return report


async def _drain(conn: Conn, dsn: str, options: argparse.Namespace) -> float:
    async with Queue(dsn, schema=SCHEMA) as queue:
        await queue.enqueue_many(noop.bind(order_id=number, note=NOTE) for number in range(options.jobs))
    await run_until_empty(dsn, 1, "--concurrency", str(options.slots))
    drained_s: float = await conn.fetchval(DRAINED_S)
    return float(options.jobs / drained_s)


@asynccontextmanager
async def _held(dsn: str, statement: str | None) -> AsyncIterator[None]:
    """Hold a snapshot taken by *statement*, or none."""
    if statement is None:
        yield
        return
    holder = await asyncpg.connect(dsn)
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetchval(statement)
        yield
    await holder.close()
