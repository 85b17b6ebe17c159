"""The version before: the package of the last release whose schema is older than ours, and a producer that runs it.

`previous.zip` is what `git archive` made of it; its comment is the commit. CONTRIBUTING.md says when it is replaced;
before the first release it is the last commit with an older schema. Unpacked, it is what its processes find first in
their path.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from jobq.db import migrate
from tests.faults.fleet import REPOSITORY, WorkerProcess
from tests.faults.run import FaultRun

ARCHIVE = Path(__file__).with_name("previous.zip")
PREFIX = "previous-"
"""What the tokens of its producer begin with."""

OURS = migrate.newest_version()


def unpack(directory: Path) -> Path:
    """Unpack the version before into *directory*, and return that as the directory whose `jobq` it is."""
    shutil.unpack_archive(ARCHIVE, directory)
    return directory


def migrations_of(code: Path) -> dict[int, bytes]:
    """Return the migrations in the directory *code*, by their version."""
    files = (code / "jobq" / "db" / "migrations").glob("*.sql")
    return {int(file.name.partition("_")[0]): file.read_bytes() for file in files}


def schema_of(code: Path) -> int:
    """Return the version of the schema that the code in the directory *code* makes."""
    return max(migrations_of(code))


@asynccontextmanager
async def producing(run: FaultRun, code: Path) -> AsyncIterator[None]:
    """Enqueue with *code*, in a process of its own, while the block runs: as often as the run's own producer would."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(code), str(REPOSITORY)])}
    rhythm = [str(run.producer.every_s), str(run.producer.step_s)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tests.faults.produce", str(run.producer.path), run.dsn, PREFIX, *rhythm),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
        assert process.returncode is None, "the producer has ended by itself"
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 20)
    assert process.returncode == 0


def told_by_logs(run: FaultRun, offenders: Collection[str], old: Collection[WorkerProcess]) -> set[str]:
    """Return those of an account's *offenders* that are explained by the log of a worker, because *old* ones had them.

    What ours write into the row of a job that they hand back or finish, those have only said.
    """
    pids = {worker.pid for worker in old}
    lines = [line for worker in run.fleet.all for line in worker.lines("errand")]
    told = set()
    for offender in offenders:
        if found := re.match(r"errand (\d+) ran again after .*attempt=(\d+),.* pid=(\d+),", offender):
            id_, attempt, pid = map(int, found.groups())
            last = run.ledger.effects("start", of=id_)[-1]
            lost, drained = f"errand {id_} was taken back: .* attempt {attempt}$", rf"drained: .*errand {id_}\b"
            if pids & {pid, last.pid} and any(re.search(f"{lost}|{drained}", line) for line in lines):
                told.add(offender)
    return told


def number_of(token: str) -> int:
    """Return the how manieth enqueue of its producer a token is."""
    found = re.search(r"\d+$", token)
    assert found is not None
    return int(found[0])
