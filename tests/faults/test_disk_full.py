"""A database whose disk is full. Only collected where the machine lets us make a small one (see conftest.py)."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobq import DatabaseUnavailableError, Queue
from tests.faults.fleet import SHORT_LEASE
from tests.faults.run import connected, fault_run
from tests.faults.servers import a_server
from tests.faults.small_disk import small_disk

FULL_S = 3.0


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small disk."""
    with small_disk() as disk:
        yield disk


@pytest.fixture
def dsn(disk: Path) -> Iterator[str]:
    """The DSN of a database that lies on the small disk; its server does not."""
    with a_server(fsync="off") as server:
        asyncio.run(create_database(server.dsn, disk))
        yield server.dsn.replace("/postgres?", "/small?")


async def create_database(dsn: str, disk: Path) -> None:
    """Create the database `small` on *disk*."""
    async with connected(dsn) as conn:
        await conn.execute(f"create tablespace small location '{disk}'")
        await conn.execute("create database small tablespace small")


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Leave no room on *disk* while the block runs."""
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            while file.write(b"x" * 65536):
                pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    try:
        yield
    finally:
        ballast.unlink()


@pytest.mark.timeout(120)
async def test_a_full_disk_costs_time_and_the_account_balances_when_there_is_room_again(
    dsn: str, disk: Path, tmp_path: Path
) -> None:
    """F02: whoever enqueues is told what is wrong; the workers wait, and go on by themselves."""
    large = {"text": "".join(random.choices("abcdefghijklmnop", k=8_000))}
    async with fault_run(dsn, tmp_path) as run, Queue(dsn) as queue:
        workers = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(20)

            with full(disk):
                with pytest.raises(DatabaseUnavailableError, match="No space left on device"):
                    await queue.enqueue("unknown", large, queue="nowhere")
                for worker in workers:
                    await worker.says("No space left on device")
                await asyncio.sleep(FULL_S)  # the fault's own length
            await run.producer.commits(20)
        await run.recovers()

        await run.account()
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]


@pytest.mark.timeout(120)
async def test_a_stop_while_the_disk_is_full_ends_within_grace_and_ten_seconds(
    dsn: str, disk: Path, tmp_path: Path
) -> None:
    """F23: nothing can be written: 0 or 3, and what is left behind comes back when there is room."""
    async with fault_run(dsn, tmp_path) as run:
        workers = await run.start_workers(**SHORT_LEASE)
        async with run.producer.producing():
            await run.producer.commits(20)
            with full(disk):
                for worker in workers:
                    await worker.says("No space left on device")

                codes = await asyncio.gather(*(worker.stop() for worker in workers))

        assert set(codes) <= {0, 3}
        await run.start_workers(1)
        await run.recovers()
        await run.account()
