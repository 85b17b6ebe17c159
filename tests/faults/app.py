"""The application of the worker processes: `jobq run app:queue --app-dir tests/faults`, with the times of the test.

Every effect of a handler goes to the ledger, a file that the queue cannot touch: also what an attempt does that no
longer owns its job. `FAULTS_SETTINGS` overrides `WorkerSettings`, which `jobq run` leaves at its defaults;
`FAULTS_POINTS` arms fault points.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from datetime import timedelta
from functools import partial

from jobq import Backoff, Job, Queue, Snooze
from jobq.cli import run as command
from jobq.settings import WorkerSettings
from jobq.worker import faults

LEDGER = os.open(os.environ["FAULTS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
SETTINGS = json.loads(os.environ["FAULTS_SETTINGS"])

# What the command line states wins. Not a plain assignment, which type checkers would take for another class.
assert vars(command)["WorkerSettings"] is WorkerSettings
vars(command)["WorkerSettings"] = partial(WorkerSettings, **SETTINGS)

SOON = Backoff(base_s=0.1, cap_s=0.5)

queue = Queue(schema=os.environ["FAULTS_SCHEMA"])


def note(what: str, job: Job, token: str = "") -> None:
    """Write one effect to the ledger. One short write to a file opened for appending is not torn."""
    entry = {
        "what": what,
        "id": job.id,
        "kind": job.kind,
        "attempt": job.attempt,
        "fence": job.fence,
        "pid": os.getpid(),
        "at": time.clock_gettime(time.CLOCK_BOOTTIME),
        "token": token or f"{job.kind} {job.id}",
    }
    os.write(LEDGER, json.dumps(entry).encode() + b"\n")


def armed(point: faults.Point, what: str, times: int) -> None:
    """Let a bug (`raise`), a pause of a second (`pause`) or a death (`kill`) happen the first *times* at *point*."""
    count = 0

    async def happen() -> None:
        nonlocal count
        count += 1
        if count > times:
            return
        logging.getLogger("faults").warning("at %s: %s", point.value, what)
        match what:
            case "raise":
                raise LookupError("a bug")
            case "pause":
                await asyncio.sleep(1.0)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                raise ValueError(what)

    faults.arm(point, happen)


for name, (what, times) in json.loads(os.environ["FAULTS_POINTS"]).items():
    armed(faults.Point(name), what, times)


@queue.task(kind="nap", backoff=SOON, on_duplicate="the ledger shows it")
async def nap(job: Job, seconds: float) -> None:
    """Sleep on the event loop."""
    note("start", job)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled", job)
        raise
    note("end", job)


@queue.task(kind="errand", timeout=4.0, backoff=SOON, max_attempts=1000, max_crashes=1000, on_duplicate="accounted for")
async def errand(job: Job, token: str, seconds: float, writes: bool) -> None:
    """Sleep, and then, if it *writes*, write one row in the transaction that completes the job.

    One that writes ignores a cancellation while it sleeps: only the fence keeps what it has lost from being written.
    """
    note("start", job, token)
    wake_at = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds
    while (left_s := wake_at - time.clock_gettime(time.CLOCK_BOOTTIME)) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            note("cancelled", job, token)
            if not writes:
                raise
    note("end", job, token)
    if writes:
        async with job.transaction() as conn:
            await conn.execute(
                f"insert into {os.environ['FAULTS_EFFECTS']} (job_id, fence) values ($1, $2)", job.id, job.fence
            )


@queue.task(kind="write", backoff=SOON, on_duplicate="the table shows it")
async def write(job: Job, seconds: float) -> None:
    """Sleep, ignoring a cancellation, and then write one row in the transaction that completes the job."""
    note("start", job)
    wake_at = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds
    while (left_s := wake_at - time.clock_gettime(time.CLOCK_BOOTTIME)) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            note("cancelled", job)
    note("end", job)
    async with job.transaction() as conn:
        await conn.execute(
            f"insert into {os.environ['FAULTS_EFFECTS']} (job_id, fence) values ($1, $2)", job.id, job.fence
        )


@queue.task(kind="hold", timeout=3.0, backoff=SOON, on_duplicate="the table shows it")
async def hold(job: Job, seconds: float, in_statement: bool) -> None:
    """Write row 0 of the table in the transaction that completes the job.

    The first attempt then keeps its lock for *seconds*, silent or *in_statement*.
    """
    note("start", job)
    async with job.transaction() as conn:
        await conn.execute(f"update {os.environ['FAULTS_EFFECTS']} set fence = $1 where job_id = 0", job.fence)
        note("locked", job)
        if job.attempt == 1:
            await (conn.execute("select pg_sleep($1)", seconds) if in_statement else asyncio.sleep(seconds))
    note("end", job)


@queue.task(kind="block", backoff=SOON, on_duplicate="the ledger shows it")
async def block(job: Job, seconds: float) -> None:
    """Hold the event loop."""
    note("start", job)
    time.sleep(seconds)  # the line that the warning names
    note("end", job)


@queue.task(kind="tidy", backoff=SOON, on_duplicate="the ledger shows it")
async def tidy(job: Job, seconds: float) -> None:
    """Sleep for ever; when cancelled clean up for *seconds*."""
    note("start", job)
    try:
        await asyncio.sleep(600)
    finally:
        note("cancelled", job)
        await asyncio.sleep(seconds)
        note("end", job)


@queue.task(kind="stubborn", on_duplicate="the ledger shows it")
async def stubborn(job: Job) -> None:
    """Ignore every cancellation."""
    note("start", job)
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            note("cancelled", job)


@queue.task(kind="hang", timeout=1.0, max_attempts=1, on_duplicate="the ledger shows it")
async def hang(job: Job) -> None:
    """Ignore every cancellation, with a time-out of a second."""
    await stubborn(job)


@queue.task(kind="postpone", on_duplicate="the ledger shows it")
async def postpone(job: Job, seconds: float) -> Snooze | None:
    """Enqueue a job that is due in *seconds*, and come back after as many."""
    note("start", job)
    if job.fence > 1:
        return None
    await queue.enqueue(nap.bind(0.0), run_at=timedelta(seconds=seconds))
    return Snooze(seconds)


@queue.task(kind="fail", backoff=SOON, max_attempts=2, on_duplicate="the ledger shows it")
async def fail(job: Job) -> None:
    """Fail, until somebody has redriven it."""
    note("start", job)
    if job.fence <= 2:
        raise LookupError("not yet")
    note("end", job)


@queue.task(kind="poison", backoff=SOON, on_duplicate="it kills its worker again")
async def poison(job: Job) -> None:
    """Kill the process, as the kernel does for want of memory."""
    note("start", job)
    os.kill(os.getpid(), signal.SIGKILL)
