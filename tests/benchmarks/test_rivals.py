"""The benchmark `rivals`: what it reads of its adapters, what voids a trial, and what it reports."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.rivals import environments, trial
from benchmarks.rivals.environments import REPOSITORY, Environment, LeftOutError
from benchmarks.rivals.measuring import compare
from benchmarks.rivals.systems import SUBJECT, System, read_system, read_systems
from benchmarks.rivals.table import table
from benchmarks.rivals.trial import VoidError, try_out

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Connect = Callable[[], Awaitable[Connection[Record]]]

ADAPTER = """
import signal
from benchmarks.rivals.adapter import enqueue_clock, main

async def setup(dsn): pass

async def enqueue(dsn, numbers):
    with enqueue_clock(): pass

def work(dsn, tally):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    for number in NUMBERS: tally.mark(number)
    signal.sigwait({signal.SIGTERM})

main(setup=setup, enqueue=enqueue, work=work)
"""
"""A system that has nothing to do with its database, and runs the jobs NUMBERS."""


def system_of(tmp_path: Path, numbers: list[int], *, unfinished: str = "select false") -> tuple[System, Environment]:
    """Return a system that runs the jobs *numbers*, and how it is started."""
    adapter = tmp_path / "adapter.py"
    adapter.write_text(ADAPTER.replace("NUMBERS", repr(numbers)))
    environment = Environment((sys.executable, "-P", str(adapter)), {"PYTHONPATH": str(REPOSITORY)}, "Python")
    return System("rival", adapter, (), unfinished), environment


def test_each_adapter_pins_its_system() -> None:
    """Figures of an unnamed version could not be repeated."""
    systems = read_systems()

    assert {system.name for system in systems if not system.dependencies} == {SUBJECT}
    assert all(system.version for system in systems if system.dependencies)


def test_each_dependency_is_pinned() -> None:
    """A driver that moves on would change the figures of a system that does not."""
    dependencies = [one for system in read_systems() for one in system.dependencies]

    assert [one for one in dependencies if "==" not in one and "@" not in one] == []


def test_a_file_without_a_head_is_refused(tmp_path: Path) -> None:
    """The error names the file and the remedy."""
    adapter = tmp_path / "bare.cjs"
    adapter.write_text("main()\n")

    with pytest.raises(ValueError, match=r"bare\.cjs has no head: it begins with `// /// script`"):
        read_system("bare", adapter)


def test_a_system_without_node_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not silently: the reason goes into the report."""
    monkeypatch.setenv("PATH", "")
    on_node = next(system for system in read_systems() if system.on_node)

    with pytest.raises(LeftOutError, match="node and npm are not on the PATH"):
        environments.prepare(on_node)


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("postgresql://u:p@db.example:5433/app?sslmode=require", "postgresql://u:p@db.example:5433/{}?sslmode=require"),
        (
            "postgresql://postgres@/postgres?host=%2Frun&port=5432",
            "postgresql:///{}?host=%2Frun&port=5432&user=postgres",
        ),
    ],
)
def test_all_drivers_can_read_the_dsn(dsn: str, expected: str) -> None:
    """One of them refuses a user before an empty host, which is how a socket is often written."""
    assert trial.dsn_of_the_database(dsn) == expected.format(trial.DATABASE)


async def test_a_trial_is_timed(tmp_path: Path, dsn: str, connect: Connect) -> None:
    """From the first call of the handler to the database's word."""
    system, environment = system_of(tmp_path, [0, 1, 2])

    measured = await try_out(await connect(), dsn, system, environment, 3, limit_s=20)

    assert measured.jobs == 3
    assert 0 < measured.drain_s < 20


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([0, 1, 1], "of 3 jobs 2 were run, with 3 calls"), ([0, 1, 2, 2], "of 3 jobs 3 were run, with 4 calls")],
)
async def test_a_job_that_is_lost_or_run_twice_voids_the_trial(
    tmp_path: Path, dsn: str, connect: Connect, numbers: list[int], expected: str
) -> None:
    """A queue is no faster for the jobs that it does not run."""
    system, environment = system_of(tmp_path, numbers)

    with pytest.raises(VoidError, match=expected):
        await try_out(await connect(), dsn, system, environment, 3, limit_s=20)


async def test_a_trial_that_is_never_finished_is_void(tmp_path: Path, dsn: str, connect: Connect) -> None:
    """Every wait can end."""
    system, environment = system_of(tmp_path, [0, 1, 2], unfinished="select true")

    with pytest.raises(VoidError, match=r"5 s later there are unfinished jobs"):
        await try_out(await connect(), dsn, system, environment, 3, limit_s=5)


async def test_a_worker_that_dies_voids_the_trial(tmp_path: Path, dsn: str, connect: Connect) -> None:
    """Its error stands above the report."""
    system, environment = system_of(tmp_path, [17])

    with pytest.raises(VoidError, match="the adapter ended with exit code 1"):
        await try_out(await connect(), dsn, system, environment, 3, limit_s=20)


async def test_jobq_goes_through_its_own_adapter(dsn: str) -> None:
    """On the same clock as the others, with what was calibrated in the report and the table."""
    systems = [system for system in read_systems() if system.name == SUBJECT]

    report = await compare(dsn, systems, runs=2, seconds=0.05)

    assert report.void == ""
    assert len(report.spread["jobq.drain_per_s"].runs) == 2
    assert report.parameters["void_trials"] == {}
    assert report.parameters["calibration_jobs"] is not None
    assert "jobq" in table(report)
