"""The gate: plain `nox` is what the README promises, `nox -t ci` what CI runs, `nox -l` lists all sessions.

The sessions share one environment, which the session `env` builds first (docs/decisions/0001-one-nox-environment.md).
Each session that checks something prints one line `N passed, N failed` of its own, or pytest's; `.ci/sum.py` adds
them up.
"""

from __future__ import annotations

import os
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"

BIN = Path(__file__).parent / ".nox" / "env" / "bin"
TWO_PROCESSES = "--numprocesses=2"
"""Each with a server of its own. Most tests wait most of their time; those of worker processes would jostle."""

OF_PYTHON = ("core", "telemetry", "cli", "worker")

DEBIAN_PG15 = "/usr/lib/postgresql/15/bin"


@nox.session(default=False)
def env(session: nox.Session) -> None:
    """Build the environment that the other sessions run in."""
    session.install("-e", ".[dev]")


@nox.session(python=False, requires=["env"], tags=["ci"])
def lint(session: nox.Session) -> None:
    """Ruff: rules and formatting."""
    check(session, ["ruff", "check"], ["ruff", "format", "--check"])


@nox.session(python=False, requires=["env"], tags=["ci"])
def types(session: nox.Session) -> None:
    """Mypy, strict, over everything; basedpyright over the public API and tests/typing."""
    # Left alone, basedpyright prefers a .venv beside it, which may lack what it checks.
    check(session, ["mypy"], ["basedpyright", "--pythonpath", str(BIN / "python")])


@nox.session(python=False, requires=["env"], tags=["ci"])
def layers(session: nox.Session) -> None:
    """The import contracts of the design."""
    check(session, ["lint-imports"])


@nox.session(python=False, requires=["env"], tags=["ci"])
def tests(session: nox.Session) -> None:
    """The tests on the embedded PostgreSQL. `nox -s tests -- tests/core -k retry` runs some."""
    elsewhere = [f"--ignore=tests/{folder}" for folder in ("benchmarks", "docs", "faults")]
    pytest(session, TWO_PROCESSES, "tests", *elsewhere)


@nox.session(python=False, requires=["env"], tags=["ci"])
def faults(session: nox.Session) -> None:
    """Worker processes that are killed, frozen and cut off, and servers that are, and are replaced: eight minutes."""
    pytest(session, "tests/faults")


@nox.session(python=False, requires=["env"], tags=["ci"])
def pg15(session: nox.Session) -> None:
    """What depends on the server, on PostgreSQL 15: Debian's, or that of JOBQ_TEST_PGBIN."""
    pgbin = os.environ.get("JOBQ_TEST_PGBIN", DEBIAN_PG15)
    if not Path(pgbin, "postgres").exists():
        session.error(f"no PostgreSQL in {pgbin}: install Debian's postgresql-15, or set JOBQ_TEST_PGBIN")
    pytest(session, TWO_PROCESSES, "tests/db", "tests/worker", "tests/model", pgbin=pgbin)


@nox.session(python=["3.12", "3.13", "3.14"], default=False)
def newer(session: nox.Session) -> None:
    """What depends on the Python, on a newer one: `nox -s newer-3.13`. CI takes the newest that its machine has."""
    session.install("-e", ".[dev]")
    session.run("pytest", TWO_PROCESSES, *(session.posargs or [f"tests/{one}" for one in OF_PYTHON]))


@nox.session(python=False, requires=["env"], tags=["ci"])
def docs(session: nox.Session) -> None:
    """README, docs, examples and the demo, run as written."""
    pytest(session, "tests/docs")


@nox.session(python=False, requires=["env"], tags=["ci"])
def benchmarks(session: nox.Session) -> None:
    """Every benchmark once, small, and a tenth of `chaos`: does each still measure what it says?"""
    pytest(session, TWO_PROCESSES, "--dist=loadfile", "tests/benchmarks")


@nox.session(python=False, requires=["env"], default=False)
def bench(session: nox.Session) -> None:
    """The benchmarks: `nox -s bench -- throughput`."""
    run(session, "python", "-m", "benchmarks", *session.posargs)


def pytest(session: nox.Session, *arguments: str, pgbin: str | None = None) -> None:
    """Run pytest on *arguments*, or on what was given after `--`, on the server of *pgbin* (None: the embedded one)."""
    run(session, "pytest", *(session.posargs or arguments), JOBQ_TEST_PGBIN=pgbin)


def check(session: nox.Session, *commands: list[str]) -> None:
    """Run all *commands*, also after one that fails, and print how many passed."""
    failed = 0
    for command in commands:
        try:
            run(session, *command)
        except CommandFailed:
            failed += 1
    print(f"{len(commands) - failed} passed, {failed} failed", flush=True)
    if failed:
        session.error(f"{failed} of {len(commands)} checks failed")


def run(session: nox.Session, program: str, *arguments: str, **variables: str | None) -> None:
    """Run *program* of the shared environment, with that environment first on the PATH."""
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    session.run(str(BIN / program), *arguments, env={"PATH": path, **variables})
