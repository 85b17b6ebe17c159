"""What jobq costs the application whose server it shares: an enqueue beside a plain insert, and a worker that idles.

`ratio_N` is enqueues a second to plain inserts a second, of N connections that send one after the other as fast as they
can. Both put the same job into the same table, a transaction each, and encode its payload, while a worker runs what
comes. They take turns on the same connections, first the one and then the other, so that both meet the same machine,
and begin with an empty table. Several connections are shared by one client process a CPU, so that it is not one
interpreter that is measured; `*_client_us_N` is what an insert costs in the client, in microseconds of CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.footprint import watch_idle
from benchmarks.report import Report, make_report
from benchmarks.workers import REPOSITORY, running_worker, until

if TYPE_CHECKING:
    from benchmarks.workers import Conn

CLIENTS = (1, 16, 64)
TURN_S = 3.0
TURNS = (("plain", "enqueue"), ("enqueue", "plain")) * 2


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Let both take turns with each number of clients, then leave a worker alone, `--runs` times."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        figures: dict[str, float] = {}
        for clients in CLIENTS:
            void = void or await _take_turns(conn, dsn, clients, figures)
        await fresh_schema(conn)
        async with running_worker(conn, dsn) as worker:
            figures |= await watch_idle(conn, worker.pid)
        for name, value in figures.items():
            runs.setdefault(name, []).append(value)
    parameters: dict[str, object] = {
        "turn_s": TURN_S,
        "turns": len(TURNS),
        "client processes": _processes(max(CLIENTS)),
    }
    report = await make_report(conn, "neighbour", runs, parameters, void)
    await conn.close()
    return report


async def _take_turns(conn: Conn, dsn: str, clients: int, figures: dict[str, float]) -> str:
    """Add the figures of so many clients. Returns why they are void, or nothing."""
    await fresh_schema(conn)
    rows: Counter[str] = Counter()
    cpu_s: defaultdict[str, float] = defaultdict(float)
    async with running_worker(conn, dsn), _inserters(dsn, clients) as inserters:
        for way in (way for ways in TURNS for way in ways):
            for inserter in inserters:
                _say(inserter, way)
            for inserter in inserters:
                count, used_s = (await _answer(inserter)).split()
                rows[way] += int(count)
                cpu_s[way] += float(used_s)
            await until(conn, "select not exists (select from {}.job)")
    for way in ("plain", "enqueue"):
        figures[f"{way}_per_s_{clients}"] = rows[way] / (TURN_S * len(TURNS))
        figures[f"{way}_client_us_{clients}"] = cpu_s[way] / rows[way] * 1e6
    figures[f"ratio_{clients}"] = rows["enqueue"] / rows["plain"]
    done = await conn.fetchval(f"select count(*) from {SCHEMA}.done")
    return "" if done == rows.total() else f"{rows.total()} jobs inserted by {clients} clients, {done} done"


@asynccontextmanager
async def _inserters(dsn: str, clients: int) -> AsyncIterator[list[Process]]:
    """Run the client processes, which share *clients* connections. The block begins when all are connected."""
    processes = _processes(clients)
    command = (sys.executable, "-m", "benchmarks.inserters", str(clients // processes), str(TURN_S))
    environment = {**os.environ, "JOBQ_DSN": dsn}
    inserters = [
        await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, env=environment, stdin=PIPE, stdout=PIPE)
        for _ in range(processes)
    ]
    try:
        for inserter in inserters:
            await _answer(inserter)
        yield inserters
    finally:
        for inserter in inserters:
            if inserter.returncode is None:
                inserter.kill()
            await inserter.wait()


def _processes(clients: int) -> int:
    return min(clients, os.cpu_count() or 1)


def _say(inserter: Process, line: str) -> None:
    assert inserter.stdin is not None
    inserter.stdin.write(f"{line}\n".encode())


async def _answer(inserter: Process) -> str:
    assert inserter.stdout is not None
    if not (line := await inserter.stdout.readline()):
        raise RuntimeError("a client process of the benchmark has ended: see what it printed above")
    return line.decode()
