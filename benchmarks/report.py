"""A benchmark's report: figures with their median and spread, and what they were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median
from typing import Any

import asyncpg
import msgspec

_NOTED_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "wal_level")


class Figure(msgspec.Struct):
    """One figure over all runs."""

    median: float
    lowest: float
    highest: float
    runs: list[float]


class Report(msgspec.Struct):
    """What a benchmark found. *void* says why the figures do not count, or is empty.

    *figures* are the medians, nested where the name of a figure has dots.
    """

    benchmark: str
    figures: dict[str, object]
    spread: dict[str, Figure]
    parameters: dict[str, object]
    machine: dict[str, object]
    versions: dict[str, str]
    server_settings: dict[str, str]
    void: str = ""


def figure(runs: Sequence[float]) -> Figure:
    """Sum up the same figure of several runs."""
    return Figure(_rounded(median(runs)), _rounded(min(runs)), _rounded(max(runs)), [_rounded(run) for run in runs])


def _nested(flat: dict[str, float]) -> dict[str, object]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        place = nested
        for step in path:
            place = place.setdefault(step, {})
        place[last] = value
    return nested


def _rounded(value: float) -> float:
    return round(value, 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 4)


async def make_report(
    conn: asyncpg.Connection[asyncpg.Record],
    benchmark: str,
    runs: dict[str, list[float]],
    parameters: dict[str, object],
    void: str,
) -> Report:
    """Put the figures of all *runs* together with the machine and the server that they come from."""
    spread = {name: figure(values) for name, values in runs.items()}
    server = await conn.fetchval("show server_version")
    return Report(
        benchmark=benchmark,
        figures=_nested({name: one.median for name, one in spread.items()}),
        spread=spread,
        parameters=parameters,
        machine={
            "cpus": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "system": f"{platform.system()} {platform.machine()}",
        },
        versions={
            "python": platform.python_version(),
            "postgresql": server,
            **{name: version(name) for name in ("jobq", "asyncpg", "uvloop", "msgspec")},
        },
        server_settings={name: await conn.fetchval(f"show {name}") for name in _NOTED_SETTINGS},
        void=void,
    )


def summary(report: Report) -> str:
    """Return the report for a person."""
    runs = max((len(one.runs) for one in report.spread.values()), default=0)
    width = max((len(name) for name in report.spread), default=0)
    lines = [f"{report.benchmark}, {runs} runs, median (lowest to highest)"]
    lines += [
        f"  {name:<{width}} {one.median:>12,}   ({one.lowest:,} to {one.highest:,})"
        for name, one in report.spread.items()
    ]
    lines.append(f"  on {report.machine['cpus']} CPUs, PostgreSQL {report.versions['postgresql']}, {report.parameters}")
    if report.void:
        lines.append(f"VOID: {report.void}")
    return "\n".join(lines)
