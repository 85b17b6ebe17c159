"""What it costs to look: `jobq stats`, `jobq explain`, `jobq doctor` and the views beside `--jobs` jobs that wait.

A seventh as many are done and a seventieth are dead: 7 million waiting, a million done and 100,000 dead with
`--jobs 7000000`. Nothing has been vacuumed, so no page of the table is known to be visible to all; `--stale` keeps the
statistics of the empty table as well. A figure is the time from the first word to the server to the answer, over a
connection of its own, as the command does it; `process` is what a person waits for, with the start of Python.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg

from benchmarks.crowd import (
    fill_counted,
    fill_dead,
    fill_done,
    fill_held,
    fill_waiting,
    keep_statistics_stale,
)
from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from jobq.core.job import JobId, WorkerId
from jobq.core.worker import WorkerRow
from jobq.db.connect import connect
from jobq.db.facts import FactReports
from jobq.db.migrate import check_version
from jobq.db.overview import Overview
from jobq.db.reports import Reports
from jobq.db.store import Store

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

HELD = 100
COUNTED = 100_000
PAGE = 100
"""Rows that are asked of the one view that has as many as there are dead letters."""

VIEWS = f"""
select array(
    select c.relname::text from pg_catalog.pg_class c
    where c.relnamespace = '{SCHEMA}'::regnamespace and c.relkind = 'v' order by 1
)
"""


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Fill the tables once, and look `--runs` times."""
    conn = await asyncpg.connect(dsn)
    await fresh_schema(conn)
    await _fill(conn, options)
    views = await conn.fetchval(VIEWS)
    runs: dict[str, list[float]] = {}
    for _ in range(options.runs):
        for name, value in (await _look(dsn, views, options)).items():
            runs.setdefault(name, []).append(value)
    there = await conn.fetchval(f"select count(*) from {SCHEMA}.job")
    void = "" if there == options.jobs + HELD else f"{there} of {options.jobs + HELD} jobs are there"
    parameters = {
        "waiting": options.jobs,
        "done": options.jobs // 7,
        "dead": options.jobs // 70,
        "held": HELD,
        "stale": options.stale,
    }
    report = await make_report(conn, "see", runs, parameters, void)
    await conn.close()
    return report


async def _fill(conn: asyncpg.Connection[asyncpg.Record], options: argparse.Namespace) -> None:
    worker_id = WorkerId(uuid4())
    if options.stale:
        await keep_statistics_stale(conn)
    await fill_waiting(conn, options.jobs)
    await fill_done(conn, options.jobs // 7)
    await fill_dead(conn, options.jobs // 70)
    await fill_held(conn, worker_id, HELD)
    await fill_counted(conn, COUNTED)
    await Store(SCHEMA).beat(conn, WorkerRow(worker_id, 1, "host", "0", ["default"], ["noop"]), 3600.0)
    await conn.execute("checkpoint")
    if not options.stale:
        await conn.execute("analyze")


async def _look(dsn: str, views: list[str], options: argparse.Namespace) -> dict[str, float]:
    reports = Reports(SCHEMA)
    # The first and the last that wait, one of each that has ended, and one that never was.
    ids = [1, options.jobs, -1_000_000_001, -1, 10**15]
    explained = [await _timed(dsn, partial(reports.explain_job, job_id=JobId(one))) for one in ids]
    by_view = {name: await _timed(dsn, partial(_rows_of, view=name)) for name in views}
    return {
        "stats_ms": await _timed(dsn, Overview(SCHEMA).look),
        "explain_ms": max(explained),
        "doctor_ms": await _timed(dsn, FactReports(SCHEMA).gather),
        "views_ms": max(by_view.values()),
        **{f"view.{name}_ms": value for name, value in by_view.items()},
        "process.stats_ms": await _process(dsn, "stats"),
        "process.explain_ms": await _process(dsn, "explain", str(options.jobs)),
        "process.doctor_ms": await _process(dsn, "doctor"),
    }


async def _rows_of(conn: AnyConnection, view: str) -> object:
    return await conn.fetch(f"select * from {SCHEMA}.{view} limit {PAGE}")


async def _timed(dsn: str, ask: Callable[[AnyConnection], Awaitable[object]]) -> float:
    started = time.perf_counter()
    conn = await connect(dsn, role="cli")
    try:
        await check_version(conn, SCHEMA)
        await ask(conn)
        return (time.perf_counter() - started) * 1000
    finally:
        await conn.close()


async def _process(dsn: str, *arguments: str) -> float:
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "jobq.cli.main",
        *arguments,
        "--schema",
        SCHEMA,
        env={"JOBQ_DSN": dsn},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
    return (time.perf_counter() - started) * 1000
