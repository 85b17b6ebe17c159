"""How many jobs a second: jobq and other queues on PostgreSQL, each tuned as its documentation says.

Each system has an environment of its own (`environments`), one adapter file (`adapters`), and one worker process. All
run on the same server, with durable settings, on 100 bytes of payload and a handler that only counts; what is kept of
finished jobs is what each keeps by default. `trial` says what is timed, for all in the same way.

A calibration finds how many jobs a system drains in about 20 s, so that each has its time to run at full speed.
Their order rotates from run to run. A system that cannot be installed is left out, and a trial in which a job was lost
or run twice does not count: the report says both, under `parameters`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.report import Report, make_report
from benchmarks.rivals.environments import Environment, LeftOutError, prepare
from benchmarks.rivals.systems import SUBJECT, System, read_systems
from benchmarks.rivals.trial import Trial, VoidError, drop_database, try_out

if TYPE_CHECKING:
    from asyncpg import Connection, Record

SECONDS = 20.0
"""What a drain is sized for."""

FIRST_GUESS = 500
"""Jobs of the first calibration: the slowest drains them in a second or two."""

CALIBRATION_S = 1.5
"""A calibration that took less is repeated with more jobs, at most `GROWTH` times as many."""

GROWTH = 20
PAYLOAD_BYTES = 100

PATIENCE = 6
"""A drain may take this many times as long as it was sized for, and no less than a minute."""


class _Rivals:
    """The measurements so far, and what they are made with."""

    def __init__(self, conn: Connection[Record], dsn: str, seconds: float) -> None:
        self.runs: dict[str, list[float]] = {}
        self.jobs: dict[str, int] = {}  # in a trial
        self.calibrations: dict[str, list[int]] = {}
        self.left_out: dict[str, str] = {}
        self.void: dict[str, str] = {}
        self._conn = conn
        self._dsn = dsn
        self._seconds = seconds
        self._environments: dict[str, Environment] = {}

    def parameters(self) -> dict[str, object]:
        """Return what the figures hang on, and what there are none of."""
        return {
            "sized_to_s": self._seconds,
            "payload_bytes": PAYLOAD_BYTES,
            "worker_processes": 1,
            "jobs": self.jobs,
            "calibration_jobs": self.calibrations,
            "runtimes": {name: environment.runtime for name, environment in self._environments.items()},
            "left_out": self.left_out,
            "void_trials": self.void,
        }

    def prepare(self, systems: Sequence[System]) -> list[System]:
        """Build the environments. Returns the systems that have one."""
        for system in systems:
            _tell(f"{system.name}: preparing its environment")
            try:
                self._environments[system.name] = prepare(system)
            except LeftOutError as error:
                self.left_out[system.name] = str(error)
                _tell(f"{system.name}: left out, {error}")
        return [system for system in systems if system.name in self._environments]

    async def run(self, number: int, systems: Sequence[System]) -> None:
        """Measure each of *systems* once, and how jobq compares with it in this run."""
        rates: dict[str, float] = {}
        for system in systems:
            try:
                rates[system.name] = await self._measure(system)
            except VoidError as error:
                self.void[f"{system.name}, run {number}"] = str(error)
                _tell(f"{system.name}: void, {error}")
        for name, rate in rates.items():
            if SUBJECT in rates and name != SUBJECT:
                self._note(f"{name}.ratio", rates[SUBJECT] / rate)

    async def _measure(self, system: System) -> float:
        """Return the rate at which *system* drained."""
        if system.name not in self.jobs:
            self.jobs[system.name] = await self._calibrate(system)
        trial = await self._try_out(system, self.jobs[system.name])
        rate = trial.jobs / trial.drain_s
        self._note(f"{system.name}.drain_per_s", rate)
        self._note(f"{system.name}.enqueue_per_s", trial.jobs / trial.enqueue_s)
        self._note(f"{system.name}.drain_s", trial.drain_s)
        _tell(f"{system.name}: {trial.jobs:,} jobs in {trial.drain_s:.1f} s, {rate:,.0f}/s")
        return rate

    async def _calibrate(self, system: System) -> int:
        """Return how many jobs *system* drains in the time that a trial is sized for."""
        jobs = FIRST_GUESS
        while True:
            trial = await self._try_out(system, jobs)
            self.calibrations.setdefault(system.name, []).append(jobs)
            if trial.drain_s >= min(CALIBRATION_S, self._seconds) or jobs >= self._sized(trial, self._seconds):
                return self._sized(trial, self._seconds)
            jobs = min(self._sized(trial, CALIBRATION_S * 1.5), jobs * GROWTH)

    @staticmethod
    def _sized(trial: Trial, seconds: float) -> int:
        return max(round(trial.jobs / trial.drain_s * seconds), FIRST_GUESS)

    async def _try_out(self, system: System, jobs: int) -> Trial:
        limit_s = max(self._seconds * PATIENCE, 60)
        environment = self._environments[system.name]
        return await try_out(self._conn, self._dsn, system, environment, jobs, limit_s=limit_s)

    def _note(self, figure: str, value: float) -> None:
        self.runs.setdefault(figure, []).append(value)


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Compare the systems `--runs` times, or those of `--systems`, and write the chart beside `--out`.

    On the server of *dsn* the database `jobq_bench_rivals` is dropped and made anew for each trial.
    """
    if options.out:
        # Here, because nothing else needs pygal, and it had better be missing now than at the end.
        from benchmarks.rivals.chart import draw
    systems = [one for one in read_systems() if not options.systems or one.name in options.systems.split(",")]
    report = await compare(dsn, systems, runs=options.runs, seconds=SECONDS)
    if options.out:
        draw(report, options.out.with_suffix(".svg"))
    return report


async def compare(dsn: str, systems: Sequence[System], *, runs: int, seconds: float) -> Report:
    """Measure each of *systems* as often as *runs* says, with as many jobs as it drains in *seconds*."""
    conn = await asyncpg.connect(dsn)
    rivals = _Rivals(conn, dsn, seconds)
    systems = rivals.prepare(systems)
    for number in range(runs):
        turn = number % max(len(systems), 1)
        await rivals.run(number + 1, [*systems[turn:], *systems[:turn]])
    await drop_database(conn)
    void = "" if f"{SUBJECT}.drain_per_s" in rivals.runs else f"{SUBJECT} was not measured"
    report = await make_report(conn, "rivals", rivals.runs, rivals.parameters(), void)
    report.versions |= {system.name: system.version for system in systems if system.dependencies}
    await conn.close()
    return report


def _tell(text: str) -> None:
    """Tell what goes on, beside the report: all runs take a quarter of an hour."""
    print(text, file=sys.stderr, flush=True)
