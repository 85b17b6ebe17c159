"""Each benchmark with a few jobs: it ends, loses none, and gives the figures that the documentation names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from benchmarks import backlog, footprint, latency, memory, mixed, neighbour, pinned, see, telemetry, throughput
from benchmarks.database import SCHEMA, fresh_schema
from jobq.db.migrate import set_history
from jobq.embedded import temporary

if TYPE_CHECKING:
    from asyncpg import Connection, Record


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A server of its own: the schema of the benchmarks has one name."""
    with temporary(settings={"fsync": "off", "max_connections": "50"}) as server:
        yield server.dsn


@pytest.fixture
def options() -> argparse.Namespace:
    """What the command line gives, with small numbers."""
    return argparse.Namespace(jobs=200, runs=1, slots=50, seconds=1.0, scheduled=0, dead=0, stale=False)


@pytest.fixture(autouse=True)
def idle_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch idle workers for less than a minute."""
    monkeypatch.setattr(footprint, "SETTLE_S", 0.1)
    monkeypatch.setattr(footprint, "IDLE_S", 0.5)


async def test_throughput(dsn: str, options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bulk enqueue, drain and both at once."""
    monkeypatch.setattr(throughput, "WARM_UP_S", 0.2)
    monkeypatch.setattr(throughput, "SUSTAINED_S", 0.5)

    report = await throughput.measure(dsn, options)

    assert report.void == ""
    assert set(report.figures) == {
        "enqueue_per_s",
        "drain_per_s",
        "drain_2_processes_per_s",
        "sustained_per_s",
        "wal_bytes_per_job",
        "wal_bytes_per_job_without_history",
        "commits_per_job",
        "rss_mb",
    }
    assert report.spread["sustained_per_s"].median > 0
    assert 0 < report.spread["wal_bytes_per_job_without_history"].median < report.spread["wal_bytes_per_job"].median


async def test_telemetry(dsn: str, options: argparse.Namespace) -> None:
    """Drained bare, watched and traced, and scraped meanwhile."""
    report = await telemetry.measure(dsn, options)

    assert report.void == ""
    assert set(report.spread) == {
        *(f"{way}_{what}" for way in ("bare", "watched", "traced") for what in ("per_s", "cpu_us_per_job")),
        *("watched_share", "scrape_ms.median", "scrape_ms.longest"),
    }
    assert report.spread["traced_per_s"].median > 0


async def test_latency(dsn: str, options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pick-up by rate, with and without notifications."""
    for name, value in {
        "RATES": (50,),
        "POLLED_RATES": (100,),
        "WARM_UP_S": 0.5,
        "LASTS_S": 0.5,
        "ONE_BY_ONE": 3,
    }.items():
        monkeypatch.setattr(latency, name, value)

    report = await latency.measure(dsn, options)

    assert report.void == ""
    assert set(report.spread) == {
        *(f"idle.{figure}" for figure in ("p50_ms", "p99_ms", "max_ms")),
        *(
            f"{load}.{figure}"
            for load in ("rates.50", "polling_only.100")
            for figure in ("p50_ms", "p99_ms", "max_ms", "lag_ms")
        ),
    }


async def test_neighbour(dsn: str, options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios by clients, and what an idle worker costs."""
    monkeypatch.setattr(neighbour, "CLIENTS", (1, 4))
    monkeypatch.setattr(neighbour, "TURN_S", 0.1)

    report = await neighbour.measure(dsn, options)

    assert report.void == ""
    assert {"ratio_1", "ratio_4", "idle_statements_per_s", "idle_cpu_percent", "connections"} <= set(report.figures)


async def test_footprint(dsn: str, options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same idle figures, and memory."""
    monkeypatch.setattr(footprint, "BUSY_SLOTS", 20)

    report = await footprint.measure(dsn, options)

    assert set(report.figures) == {
        "idle_statements_per_s",
        "idle_cpu_percent",
        "connections",
        "idle_rss_mb",
        "busy_rss_mb",
    }


async def test_pinned(dsn: str, options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drain and load beside held snapshots."""
    monkeypatch.setattr(pinned, "RATE_PER_S", 200)
    monkeypatch.setattr(pinned, "WATCHED_AT_LEAST_S", 1.0)

    report = await pinned.measure(dsn, options)

    assert report.void == ""
    assert {"ratio", "p99_ratio", "recovery_s", "late_s", "free", "reading", "writing"} == set(report.figures)


async def test_backlog(dsn: str, options: argparse.Namespace) -> None:
    """With everything beside it that it may have."""
    options.jobs = 20_000  # several settles a tenth
    options.scheduled, options.dead, options.stale = 100, 100, True

    report = await backlog.measure(dsn, options)

    assert report.void == ""
    assert set(report.figures) == {"drained_s", "first_tenth_per_s", "last_tenth_per_s", "last_to_first"}


async def test_mixed(dsn: str, options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue beside a flooded one, and an urgent job."""
    monkeypatch.setattr(mixed, "FLOOD", 500)
    monkeypatch.setattr(mixed, "OTHER_JOBS", 10)

    report = await mixed.measure(dsn, options)

    assert report.void == ""
    assert set(report.spread) == {"other_queue.p50_ms", "other_queue.p99_ms", "urgent_s"}


async def test_memory(dsn: str, options: argparse.Namespace) -> None:
    """F100: the worker's memory after each tenth."""
    report = await memory.measure(dsn, options)

    assert report.void == ""
    assert set(report.spread) == {*(f"rss_mb.{20 * tenth}" for tenth in range(1, 11)), "growth_mb"}


async def test_see(dsn: str, options: argparse.Namespace) -> None:
    """Each command and each view, with few jobs."""
    options.jobs = 700

    report = await see.measure(dsn, options)

    assert report.void == ""
    assert {"stats_ms", "explain_ms", "doctor_ms", "views_ms", "view", "process"} == set(report.figures)
    assert report.parameters["dead"] == 10


async def test_a_run_whose_jobs_are_not_on_record_is_void(
    dsn: str, options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the history does not know may be lost."""

    async def without_history(conn: Connection[Record]) -> None:
        await fresh_schema(conn)
        await set_history(conn, SCHEMA, 0)

    monkeypatch.setattr(memory, "fresh_schema", without_history)

    report = await memory.measure(dsn, options)

    assert report.void == "0 of 200 jobs are done"
