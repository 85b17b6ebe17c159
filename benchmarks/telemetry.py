"""What it costs to be watched: the drain rate with metrics and tracing on, beside that without, in turns.

`bare_per_s` is a worker as in `throughput`. `watched_per_s` is one with `/metrics`, scraped once a second, and
with tracing by an SDK that records everything; its jobs were enqueued by a producer that records nothing, as nearly all
are under a sampler. `watched_share` is the second over the first of the same turn, in percent. `traced_per_s` is what
is left if every single job was enqueued in a recorded span and makes one of its own. `scrape_ms` is a scrape by an HTTP
client beside them. `cpu_us_per_job` is what the worker's process has used from its registration to the last outcome.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import time
import urllib.request
from statistics import median
from typing import TYPE_CHECKING

import anyio
import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import NOTE
from benchmarks.throughput import DRAINED_S, missing
from benchmarks.traced import noop, provider
from benchmarks.workers import cpu_s, running_worker, until
from jobq import Queue
from jobq.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from benchmarks.workers import Conn

SCRAPE_EVERY_S = 1.0
"""Prometheus scrapes once in 15 s or more; a drain lasts a few."""


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Drain `--jobs` jobs in each of the three ways, `--runs` times, each in a new schema and in another order."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for turn in range(options.runs):
        ways = ["bare", "watched", "traced"]
        figures: dict[str, float] = {}
        scrapes: list[float] = []
        for way in ways if turn % 2 == 0 else reversed(ways):
            await fresh_schema(conn)
            of_way, took_ms, fault = await _drain(conn, dsn, options, way)
            figures |= of_way
            scrapes += took_ms
            void = void or fault
        figures["watched_share"] = 100 * figures["watched_per_s"] / figures["bare_per_s"]
        figures["scrape_ms.median"] = median(scrapes)
        figures["scrape_ms.longest"] = max(scrapes)
        for name, value in figures.items():
            runs.setdefault(name, []).append(value)
    parameters: dict[str, object] = {
        "jobs": options.jobs,
        "slots": options.slots,
        "scrape_every_s": SCRAPE_EVERY_S,
        "history": "1 day",
    }
    report = await make_report(conn, "telemetry", runs, parameters, void)
    await conn.close()
    return report


async def _drain(
    conn: Conn, dsn: str, options: argparse.Namespace, way: str
) -> tuple[dict[str, float], list[float], str]:
    """Return the figures, how long each scrape took in milliseconds, and why the run is void, or nothing."""
    async with Queue(dsn, schema=SCHEMA, tracing=Tracing(provider) if way == "traced" else None) as queue:
        await queue.enqueue_many(noop.bind(order_id=number, note=NOTE) for number in range(options.jobs))
    address, drained = f"127.0.0.1:{_free_port()}", asyncio.Event()
    how = ("--http", address) if way != "bare" else ()
    app = "traced" if way != "bare" else "sleepers"
    async with (
        running_worker(conn, dsn, "--concurrency", str(options.slots), *how, app=app) as worker,
        asyncio.TaskGroup() as group,
    ):
        used_s = cpu_s(worker.pid)
        scraping = group.create_task(_scrape(f"http://{address}/metrics", drained) if how else _nothing())
        await until(conn, "select not exists (select from {}.job)")
        used_s = cpu_s(worker.pid) - used_s
        drained.set()
    figures = {
        f"{way}_per_s": options.jobs / await conn.fetchval(DRAINED_S),
        f"{way}_cpu_us_per_job": used_s / options.jobs * 1e6,
    }
    return figures, scraping.result(), await missing(conn, options.jobs)


async def _scrape(url: str, drained: asyncio.Event) -> list[float]:
    """Scrape until all is *drained*, at least once. Returns how long each took, in milliseconds."""
    took_ms: list[float] = []
    while not (took_ms and drained.is_set()):
        began = time.perf_counter()
        await asyncio.to_thread(_read, url)
        took_ms.append((time.perf_counter() - began) * 1000)
        with anyio.move_on_after(SCRAPE_EVERY_S):
            await drained.wait()
    return took_ms


async def _nothing() -> list[float]:
    return []


def _read(url: str) -> None:
    with urllib.request.urlopen(url, timeout=5) as answer:
        answer.read()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port
