"""A tenth of the benchmark `chaos`: workers and server go down again and again, and every order is accounted for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CHAOS = ("--jobs", "100000", "--kills", "100", "--restarts", "2", "--json")
PROMISED = {
    "jobs": 100_000,
    "lost": 0,
    "ghosts": 0,
    "unexplained_duplicates": 0,
    "late_writes_accepted": 0,
    "kills": 100,
    "freezes": 10,
    "stops": 10,
    "restarts": 2,
}


@pytest.mark.timeout(600)
def test_a_hundred_killed_workers_and_two_restarts_lose_nothing() -> None:
    """Nor double anything without a record that says why, nor let a lost lease write; and all go on by themselves."""
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
    assert report["void"] == ""
    assert {name: figures[name] for name in PROMISED} == PROMISED
    assert figures["duplicates"] == sum(figures["by_reason"].values())
    assert figures["recovery_max_s"] > 0
    assert figures["stop_max_s"] > 0
