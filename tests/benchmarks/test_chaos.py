"""A tenth of the benchmark `chaos`: workers and server go down again and again, and every order is accounted for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CHAOS = ("--jobs", "100000", "--kills", "100", "--restarts", "2", "--json")


@pytest.mark.timeout(600)
def test_a_hundred_killed_workers_and_two_restarts_lose_nothing() -> None:
    """Nor do they double anything without a reason on record, or let a lost lease write."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "chaos", *CHAOS],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    figures = report["figures"]
    promised = (
        "jobs",
        "lost",
        "ghosts",
        "unexplained_duplicates",
        "late_writes_accepted",
        "kills",
        "freezes",
        "restarts",
    )
    assert report["void"] == ""
    assert [figures[name] for name in promised] == [100_000, 0, 0, 0, 0, 100, 10, 2]
