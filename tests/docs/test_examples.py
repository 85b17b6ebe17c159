"""The examples, run as their heads say: what they promise is what is in the database and in the mailbox afterwards."""

from __future__ import annotations

import mailbox
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from email.message import Message
from pathlib import Path

import asyncpg
import pytest

from jobq.embedded import start
from tests.embedded import conftest as embedded

REPOSITORY = Path(__file__).parents[2]
ORDERS, REFUSED = 1000, 100

directory = embedded.directory  # a fixture, which also clears what root keeps elsewhere

pytestmark = pytest.mark.timeout(180)  # a thousand real mails on a loaded machine


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with *arguments* in *directory*, as somebody without any database in the environment."""
    given = {name: value for name, value in os.environ.items() if name not in ("JOBQ_DSN", "DATABASE_URL", "SMTP_HOST")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**given, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def jobq(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `jobq`; `-P` keeps the working directory off sys.path, as the console script does."""
    return run(directory, "-P", "-m", "jobq.cli.main", *arguments)


def mails(path: Path) -> Iterator[Message]:
    """Read a mailbox."""
    with closing(mailbox.mbox(path, create=False)) as box:
        yield from box


async def query(dsn: str, text: str) -> list[int]:
    """Return the first column of what the statement *text* answers."""
    conn = await asyncpg.connect(dsn)
    try:
        return [row[0] for row in await conn.fetch(text)]
    finally:
        await conn.close()


async def test_receipts_are_sent_for_committed_orders_and_no_other(directory: Path) -> None:
    """1,000 receipts for 1,000 committed orders, none for the 100 that were rolled back."""
    migrated = jobq(directory, "migrate", "--embedded")
    placed = run(directory, "-m", "examples.receipts", "--orders", f"{ORDERS}", "--refused", f"{REFUSED}", "--embedded")
    worked = jobq(directory, "run", "examples.receipts:queue", "--embedded", "--until-empty")

    assert (migrated.returncode, placed.returncode, worked.returncode) == (0, 0, 0), worked.stderr
    assert placed.stdout == "1,000 orders committed, 100 rolled back\n"
    assert worked.stderr.startswith("started an embedded PostgreSQL")
    with start(directory) as server:
        orders = await query(server.dsn, "select id from orders")
        highest = await query(server.dsn, "select last_value from orders_id_seq")
        jobs = await query(server.dsn, "select id from jobq.done")
        left = await query(server.dsn, "select id from jobq.job union all select id from jobq.dead_letter")
    received = list(mails(directory / "receipts.mbox"))
    assert (len(orders), highest, left) == (ORDERS, [ORDERS + REFUSED], [])
    assert sorted(mail["Subject"] for mail in received) == sorted(f"Receipt for order {one}" for one in orders)
    assert {mail["Message-Id"] for mail in received} == {f"<receipt-{one}@shop.example.com>" for one in jobs}
