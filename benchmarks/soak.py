"""Hours of a steady load: what grows, what does not, and whether pick-up stays what it was.

One worker process, 2,000 jobs a second, one a transaction, for `--hours`. Each minute is one sample, of a shorter run
each tenth. The report has all samples, as `over_time`; with `--out x.json` they are drawn in `x.svg` beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
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
FEWEST_SAMPLES = 10
READ_EVERY_S = 1.0
"""The load comes from the same process: what is read at once must not hold it up."""
SENT_AT_ONCE_S = 600.0
"""How late each job was is kept until so much is sent."""

SIZES = f"""
    select
        pg_table_size('{SCHEMA}.job')::float8 / 1048576 as job_table_mb,
        pg_indexes_size('{SCHEMA}.job')::float8 / 1048576 as job_indexes_mb,
        (
            select sum(pg_total_relation_size(relid))::float8 / 1048576
            from pg_partition_tree('{SCHEMA}.done')
        ) as history_mb,
        (select n_dead_tup::float8 from pg_stat_all_tables where relid = '{SCHEMA}.job'::regclass) as dead_rows
"""
ENQUEUED = f"select id, extract(epoch from enqueued_at)::float8 from {SCHEMA}.done where id >= $1"


class Sample(msgspec.Struct):
    """What a part of the time was like."""

    p50_ms: float
    p99_ms: float
    worker_mb: float
    job_table_mb: float
    job_indexes_mb: float
    history_mb: float
    dead_rows: float


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Load for `--hours`, once. The figures are the first sample's, the last one's, the worst, and all of them."""
    if options.out:  # what is missing for the chart is not to be missed after hours only
        import pygal  # noqa: F401 - of the extra `bench`

        options.out.with_suffix(".svg").touch()
    conn = await asyncpg.connect(dsn)
    await fresh_schema(conn)
    seconds = options.hours * 3600
    sample_s = min(SAMPLE_S, seconds / FEWEST_SAMPLES)
    with stamp_file() as stamps:
        async with (
            running_worker(conn, dsn, app="stamps", environment={STAMPS: str(stamps)}) as worker,
            Queue(dsn, schema=SCHEMA) as queue,
            asyncio.TaskGroup() as group,
        ):
            sending = group.create_task(_send(dsn, queue, seconds))
            watch = Watch(conn, StampReader(stamps), worker.pid)
            samples = [await watch.sample(sample_s) for _ in range(round(seconds / sample_s))]
            sent, lag_ms = await sending
            await until(conn, "select not exists (select from {}.job)")
    done = await conn.fetchval(f"select count(*) from {SCHEMA}.done", timeout=600)
    void = "" if done == sent else f"{sent} jobs enqueued, {done} done"
    parameters: dict[str, object] = {"rate_per_s": RATE_PER_S, "hours": options.hours, "sample_s": sample_s}
    report = await make_report(conn, "soak", _figures(samples) | {"lag_ms": lag_ms}, parameters, void)
    await conn.close()
    if options.out:
        _draw(samples, sample_s, options.out.with_suffix(".svg"))
    return report


async def _send(dsn: str, queue: Queue, seconds: float) -> tuple[int, list[float]]:
    """Enqueue for so long. Returns how many jobs, and of each part the p99 of how late they were begun."""
    sent, lag_ms = 0, []
    while seconds > 0:
        late_ms = await send(dsn, queue, RATE_PER_S, min(seconds, SENT_AT_ONCE_S))
        seconds -= SENT_AT_ONCE_S
        sent += len(late_ms)
        lag_ms.append(percentile(late_ms, 99))
    return sent, lag_ms


class Watch:
    """Takes the samples: each is about the jobs that were done since the one before."""

    def __init__(self, conn: Conn, stamps: StampReader, worker_pid: int) -> None:
        self._conn = conn
        self._stamps = stamps
        self._worker_pid = worker_pid
        self._ends_at = time.monotonic()

    async def sample(self, seconds: float) -> Sample:
        """Take one, *seconds* after the one before."""
        self._ends_at += seconds
        waits_ms: list[float] = []
        while (left_s := self._ends_at - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, READ_EVERY_S))
            waits_ms += await self._read_waits_ms()
        if len(waits_ms) < 2:
            waits_ms = [seconds * 1000] * 2  # hardly anything started: whoever waits has waited for all of it
        sizes = await self._conn.fetchrow(SIZES)
        assert sizes is not None
        return Sample(
            p50_ms=percentile(waits_ms, 50),
            p99_ms=percentile(waits_ms, 99),
            worker_mb=rss_mb(self._worker_pid),
            **sizes,
        )

    async def _read_waits_ms(self) -> list[float]:
        started = self._stamps.read()
        if not started:
            return []
        # From the oldest that had started and was not done at the last look: those are the slow ones.
        rows = await self._conn.fetch(ENQUEUED, min(started))
        return [(started.pop(job_id) - enqueued_at) * 1000 for job_id, enqueued_at in rows if job_id in started]


def _figures(samples: list[Sample]) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {}
    for name in Sample.__struct_fields__:
        values = [getattr(sample, name) for sample in samples]
        figures |= {f"{name}.first": values[:1], f"{name}.last": values[-1:], f"{name}.worst": [max(values)]}
        figures[f"{name}.over_time"] = values
    return figures


def _draw(samples: list[Sample], sample_s: float, path: Path) -> None:
    import pygal

    chart = pygal.Line(
        title=f"{RATE_PER_S:,} jobs a second",
        x_title="minutes",
        x_labels=[f"{(number + 1) * sample_s / 60:g}" for number in range(len(samples))],
        show_minor_x_labels=False,
        x_labels_major_every=max(1, len(samples) // 12),
        logarithmic=True,
        show_dots=False,
        js=(),
    )
    chart.uuid = "soak"  # not a new one each time
    for name in Sample.__struct_fields__:
        chart.add(name.replace("_", " "), [max(getattr(sample, name), 0.01) for sample in samples])
    path.write_bytes(chart.render())
