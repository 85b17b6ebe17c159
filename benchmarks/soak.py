"""Hours of a steady load: what grows, what does not, and whether pick-up stays what it was.

One worker process, 2,000 jobs a second, one a transaction, for `--hours`. Each minute is one sample. With
`--out x.json` the samples are drawn in `x.svg` beside it.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import msgspec

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.open_loop import send
from benchmarks.pick_up import percentile, stamp_file
from benchmarks.report import Report, make_report
from benchmarks.stamps import STAMPS, StampReader
from benchmarks.workers import rss_mb, running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

RATE_PER_S = 2000
SAMPLE_S = 60.0

SIZES = f"""
    select
        pg_table_size('{SCHEMA}.job')::float8 / 1048576 as job_table_mb,
        pg_indexes_size('{SCHEMA}.job')::float8 / 1048576 as job_indexes_mb,
        (select n_dead_tup::float8 from pg_stat_all_tables where relid = '{SCHEMA}.job'::regclass) as dead_rows
"""
ENQUEUED = f"select id, extract(epoch from enqueued_at)::float8 from {SCHEMA}.done where id > $1"


class Sample(msgspec.Struct):
    """What a minute was like."""

    p50_ms: float
    p99_ms: float
    worker_mb: float
    job_table_mb: float
    job_indexes_mb: float
    dead_rows: float


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Load for `--hours`, once. The figures are the first minute's, the last one's, and the worst."""
    conn = await asyncpg.connect(dsn)
    await fresh_schema(conn)
    seconds = options.hours * 3600
    samples: list[Sample] = []
    with stamp_file() as stamps:
        async with (
            running_worker(conn, dsn, app="stamps", environment={STAMPS: str(stamps)}) as worker,
            Queue(dsn, schema=SCHEMA) as queue,
            asyncio.TaskGroup() as group,
        ):
            sending = group.create_task(send(dsn, queue, RATE_PER_S, seconds))
            watch = Watch(conn, StampReader(stamps), worker.pid)
            while not sending.done():
                await asyncio.wait([sending], timeout=SAMPLE_S)
                samples.append(await watch.sample())
            sent = len(await sending)
            await until(conn, "select not exists (select from {}.job)")
    done = await conn.fetchval(f"select count(*) from {SCHEMA}.done", timeout=600)
    runs = {
        f"{name}.{which}": [value]
        for name in Sample.__struct_fields__
        for which, value in _extremes([getattr(sample, name) for sample in samples]).items()
    }
    void = "" if done == sent else f"{sent} jobs enqueued, {done} done"
    parameters: dict[str, object] = {"rate_per_s": RATE_PER_S, "hours": options.hours, "samples": len(samples)}
    report = await make_report(conn, "soak", runs, parameters, void)
    await conn.close()
    if options.out:
        _draw(samples, options.out.with_suffix(".svg"))
    return report


class Watch:
    """Takes the samples: each is about the jobs that were done since the one before."""

    def __init__(self, conn: Conn, stamps: StampReader, worker_pid: int) -> None:
        self._conn = conn
        self._stamps = stamps
        self._worker_pid = worker_pid
        self._last_id = 0

    async def sample(self) -> Sample:
        """Take one."""
        rows = await self._conn.fetch(ENQUEUED, self._last_id)
        started = self._stamps.read()
        waits_ms = [(started.pop(job_id) - enqueued_at) * 1000 for job_id, enqueued_at in rows if job_id in started]
        self._last_id = max((row[0] for row in rows), default=self._last_id)
        sizes = await self._conn.fetchrow(SIZES)
        assert sizes is not None
        return Sample(
            p50_ms=percentile(waits_ms, 50),
            p99_ms=percentile(waits_ms, 99),
            worker_mb=rss_mb(self._worker_pid),
            job_table_mb=sizes["job_table_mb"],
            job_indexes_mb=sizes["job_indexes_mb"],
            dead_rows=sizes["dead_rows"],
        )


def _extremes(values: list[float]) -> dict[str, float]:
    return {"first": values[0], "last": values[-1], "worst": max(values)}


def _draw(samples: list[Sample], path: Path) -> None:
    import pygal  # of the extra `bench`, which the figures do not need

    chart = pygal.Line(
        title="each minute of the load",
        x_title="minutes",
        x_labels=[str(number) for number in range(1, len(samples) + 1)],
        show_minor_x_labels=False,
        x_labels_major_every=max(1, len(samples) // 12),
        logarithmic=True,
        js=(),
    )
    chart.uuid = "soak"  # not a new one each time
    for name in Sample.__struct_fields__:
        chart.add(name.replace("_", " "), [max(getattr(sample, name), 0.01) for sample in samples])
    path.write_bytes(chart.render())
