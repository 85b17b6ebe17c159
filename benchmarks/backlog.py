"""A backlog of `--jobs` waiting jobs, drained by one worker process while 2,000 more arrive a second.

`--scheduled` jobs for tomorrow and `--dead` dead letters may lie beside it, and `--stale` keeps the statistics that the
table has while it is empty. The server itself puts all this there, a moment before. Timed by the history's clock.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.crowd import fill_dead, fill_scheduled, fill_waiting, keep_statistics_stale
from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import NOTE, noop
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

ARRIVING_PER_S = 2000
BATCH = 100
"""Of what arrives, in one transaction: what the producer costs is not the question here."""
LOOK_EVERY_S = 0.5
"""A look walks what is dead at the front of an index, and the server has better things to do."""

NO_BACKLOG = "select coalesce(min(id) > $1, true) from {}.job"
ALL_RUN = """
    select not exists (select from {0}.job where worker_id is not null)
        and not exists (
            select from {0}.job where worker_id is null and queue = 'default' and priority = 5 and run_at <= now()
        )
"""
DRAINED_S = f"""
    select extract(epoch from max(finished_at) - min(claimed_at))::float8
    from {SCHEMA}.done
    where id between 1 and $1
"""
TENTHS = f"""
    with numbered as (
        select finished_at, claimed_at, ntile(10) over (order by finished_at) as tenth
        from {SCHEMA}.done
        where id between 1 and $1
    ), tenths as (
        select tenth, count(*) as jobs, max(finished_at) as ended_at, min(claimed_at) as claimed_at
        from numbered
        group by tenth
    )
    select jobs / extract(epoch from ended_at - lag(ended_at, 1, claimed_at) over (order by tenth))::float8
    from tenths
    order by tenth
"""
COUNTS = f"""
    select
        (select count(*) from {SCHEMA}.done where id <= $1) as old,
        (select count(*) from {SCHEMA}.done where id > $1) as arrived,
        (select count(*) from {SCHEMA}.job) as scheduled,
        (select count(*) from {SCHEMA}.dead_letter) as dead
"""
QUESTION_LIMIT_S = 600.0


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Drain the backlog `--runs` times, each in a new schema."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        await fresh_schema(conn)
        if options.stale:
            await keep_statistics_stale(conn)
        await fill_dead(conn, options.dead)
        await fill_waiting(conn, options.jobs)
        await fill_scheduled(conn, options.scheduled)
        await conn.execute("checkpoint")
        arrived = await _drain(conn, dsn, options)
        expected = (options.jobs, arrived, options.scheduled, options.dead)
        [found] = await conn.fetch(COUNTS, options.jobs, timeout=QUESTION_LIMIT_S)
        if tuple(found) != expected:
            void = f"backlog, arrived, scheduled and dead were {expected}, done and left are {tuple(found)}"
            break
        await _add_figures(conn, options.jobs, runs)
    parameters: dict[str, object] = {
        "jobs": options.jobs,
        "slots": options.slots,
        "arriving_per_s": ARRIVING_PER_S,
        "scheduled": options.scheduled,
        "dead": options.dead,
        "stale": options.stale,
    }
    report = await make_report(conn, "backlog", runs, parameters, void)
    await conn.close()
    return report


async def _drain(conn: Conn, dsn: str, options: argparse.Namespace) -> int:
    """Run a worker until the backlog and all that arrived meanwhile are done. Returns how many arrived."""
    is_drained = asyncio.Event()
    async with (
        Queue(dsn, schema=SCHEMA) as queue,
        running_worker(conn, dsn, "--concurrency", str(options.slots)),
        asyncio.TaskGroup() as group,
    ):
        arriving = group.create_task(_arrive(queue, is_drained))
        await until(conn, NO_BACKLOG, options.jobs, every_s=LOOK_EVERY_S)
        is_drained.set()
        arrived = await arriving
        await until(conn, ALL_RUN, every_s=LOOK_EVERY_S)
    return arrived


async def _arrive(queue: Queue, is_drained: asyncio.Event) -> int:
    """Enqueue at the stated rate until the backlog is drained. Returns how many."""
    began = time.monotonic()
    batches = 0
    while not is_drained.is_set():
        await queue.enqueue_many([noop.bind(order_id=number, note=NOTE) for number in range(BATCH)])
        batches += 1
        await asyncio.sleep(max(0.0, began + batches * BATCH / ARRIVING_PER_S - time.monotonic()))
    return batches * BATCH


async def _add_figures(conn: Conn, jobs: int, runs: dict[str, list[float]]) -> None:
    tenths = [row[0] for row in await conn.fetch(TENTHS, jobs, timeout=QUESTION_LIMIT_S)]
    figures = {
        "drained_s": await conn.fetchval(DRAINED_S, jobs, timeout=QUESTION_LIMIT_S),
        "first_tenth_per_s": tenths[0],
        "last_tenth_per_s": tenths[-1],
        "last_to_first": tenths[-1] / tenths[0],
    }
    for name, value in figures.items():
        runs.setdefault(name, []).append(value)
