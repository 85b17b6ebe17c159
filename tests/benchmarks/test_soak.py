"""The benchmark `soak` for some seconds: samples over time in the report, and drawn."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import soak
from jobq.embedded import temporary


async def test_every_sample_is_in_the_report_and_in_the_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, sizes, dead rows and pick-up, ten times."""
    monkeypatch.setattr(soak, "RATE_PER_S", 100)
    out = tmp_path / "soak.json"

    with temporary(settings={"fsync": "off"}) as server:
        report = await soak.measure(server.dsn, argparse.Namespace(hours=4 / 3600, out=out))

    assert report.void == ""
    over_time = {name: len(one.runs) for name, one in report.spread.items() if name.endswith(".over_time")}
    measured = ("p50_ms", "p99_ms", "worker_mb", "job_table_mb", "job_indexes_mb", "history_mb", "dead_rows")
    assert over_time == {f"{name}.over_time": 10 for name in measured}
    assert 0 < report.spread["p99_ms.over_time"].highest < report.spread["p99_ms.worst"].median + 1
    chart = out.with_suffix(".svg").read_text()
    assert [name for name in measured if name.replace("_", " ") not in chart] == []
