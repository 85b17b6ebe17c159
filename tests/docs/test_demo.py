"""`jobq demo`, run as a newcomer does: the account holds, nothing else is touched, nothing is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from jobq.embedded import start
from tests.embedded import conftest as embedded

REPOSITORY = Path(__file__).parents[2]
COMMAND = (sys.executable, "-P", "-m", "jobq.cli.main")
KEYS = {
    *("orders_committed", "orders_rolled_back", "receipts", "lost", "duplicates", "in_flight_at_kill", "dead"),
    *("redriven", "seconds"),
}

directory = embedded.directory  # a fixture, which also clears what root keeps elsewhere

pytestmark = pytest.mark.timeout(180)


def environment() -> dict[str, str]:
    """Return that of somebody without any database."""
    given = {name: value for name, value in os.environ.items() if name not in ("JOBQ_DSN", "DATABASE_URL")}
    return {**given, "PYTHONPATH": str(REPOSITORY)}


def jobq(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `jobq` without a terminal."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=directory,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


async def query(dsn: str, text: str) -> list[Any]:
    """Return the first column of what the statement *text* answers."""
    conn = await asyncpg.connect(dsn)
    try:
        return [row[0] for row in await conn.fetch(text)]
    finally:
        await conn.close()


def workers_of(directory: Path) -> list[str]:
    """Return the demo's worker processes whose working directory is *directory*."""
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and is_worker_of(directory, Path("/proc", pid))]


def is_worker_of(directory: Path, process: Path) -> bool:
    """Say whether a process is one."""
    try:
        return process.joinpath("cwd").readlink() == directory and b"jobq.demo.shop:queue" in (
            process.joinpath("cmdline").read_bytes()
        )
    except OSError:
        return False  # it has ended, or is somebody else's


async def test_the_account_holds_and_nobody_elses_jobs_are_touched(directory: Path) -> None:
    """Its database is its own: what a killed demo left is cleared, and nobody's jobs are taken."""
    assert jobq(directory, "migrate", "--embedded").returncode == 0
    with start(directory) as server:
        await query(server.dsn, "create database jobq_demo")
        await query(server.dsn, "select id from jobq.enqueue('send_receipt', '{\"order_id\": 7}', 'mail')")

    shown = jobq(directory, "demo", "--orders", "300", "--seed", "3", "--json")

    assert shown.returncode == 0, shown.stderr + shown.stdout
    account = json.loads(shown.stdout)
    assert account.keys() >= KEYS
    assert (account["orders_committed"], account["orders_rolled_back"], account["receipts"]) == (270, 30, 270)
    assert (account["lost"], account["wrong"], account["unfinished"]) == (0, 0, 0)
    assert account["dead"] == account["redriven"] == 5
    assert account["in_flight_at_kill"] > 0
    assert account["duplicates"] == len(account["duplicate_receipts"]) <= account["in_flight_at_kill"]
    assert "was taken back: its worker fell silent during attempt 1" in (directory / ".jobq" / "demo.log").read_text()
    assert workers_of(directory) == []
    with start(directory) as server:
        assert await query(server.dsn, "select count(*) from jobq.job where attempt = 0") == [1]
        assert await query(server.dsn, "select count(*) from pg_database where datname = 'jobq_demo'") == [0]


def test_it_reads_well_in_eighty_columns_and_without_colour(directory: Path) -> None:
    """What happens, in order, and then the account."""
    shown = jobq(directory, "demo", "--orders", "100", "--seed", "4")

    assert shown.returncode == 0, shown.stderr + shown.stdout
    assert "\x1b" not in shown.stdout
    lines = shown.stdout.splitlines()
    assert [line for line in lines[:-2] if len(line) > 80] == []  # the last two name files
    told = [line for line in lines if line[5:8] == " s "]
    order = ["seed 4", "two workers", "orders come in", "kill -9", "has lapsed", "dead letters", "redrive", "SIGTERM"]
    places = [next(place for place, line in enumerate(told) if word in line) for word in order]
    assert places == sorted(places)
    assert "lease 3 s, a beat every 0.75 s" in told[1]
    assert "     90  orders committed" in lines
    assert "It holds." in lines


def test_on_a_terminal_it_shows_a_live_table(directory: Path) -> None:
    """With a progress bar that comes to its end; what happened stays, the table goes."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [*COMMAND, "demo", "--orders", "100", "--seed", "5"],
        cwd=directory,
        env={**environment(), "TERM": "xterm", "COLUMNS": "80"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as demo:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # EIO: nobody has the other end any more
            while chunk := os.read(ours, 65536):
                shown += chunk
    os.close(ours)

    assert demo.returncode == 0, shown.decode()
    text = shown.decode()
    assert "100%" in text
    assert "━" in text
    assert re.search(r"workers +\d+ alive, \d+ (alive|killed)", text)
    assert "It holds." in text.rpartition("\x1b")[2]


def test_an_interrupted_demo_leaves_no_worker(directory: Path) -> None:
    """Ctrl-C in the middle: exit code 130, and its worker processes are gone."""
    with subprocess.Popen(
        [*COMMAND, "demo", "--orders", "1000"],
        cwd=directory,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "orders come in" in line:
                break
        assert len(workers_of(directory)) == 2
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
        code = demo.wait()

    assert code == 130, rest
    give_up_at = time.monotonic() + 10
    while workers_of(directory) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    assert workers_of(directory) == []
