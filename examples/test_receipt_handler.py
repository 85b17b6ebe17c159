"""Testing a handler: as the plain function that it is, and once through a real worker on a real PostgreSQL.

What a handler does is tested by calling it. That its payload is stored and decoded again, and that its lifespan opens
what it needs, is tested by letting `jobq run --until-empty` work on the job.

    pytest examples/test_receipt_handler.py

It needs pytest-asyncio, with `asyncio_mode = "auto"`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from examples.mail_server import MailServer, read_mails, run_mail_server
from examples.receipts import ORDERS, place_order, queue, send_receipt
from jobq import Job, Permanent
from jobq.embedded import temporary

JOBQ = Path(sys.executable).with_name("jobq")  # of the environment that the tests run in


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A PostgreSQL for the tests of this file, which leaves nothing behind."""
    with temporary(settings={"fsync": "off"}) as server:
        subprocess.run([JOBQ, "migrate", "--dsn", server.dsn], check=True)
        yield server.dsn


@pytest.fixture
async def order_id(dsn: str) -> AsyncIterator[int]:
    """An order that was placed, and so the job that sends its receipt."""
    queue.use_dsn(dsn)
    async with queue:  # closes its pool after the test
        pool = await queue.pool()
        await pool.execute(ORDERS)
        async with pool.acquire() as conn:
            await place_order(conn, "ada@example.com", 450, can_pay=True)
        newest: int = await pool.fetchval("select max(id) from orders")
        yield newest


async def test_called_twice_it_does_what_on_duplicate_says(order_id: int, tmp_path: Path) -> None:
    """Both mails have the same Message-Id."""
    async with run_mail_server(tmp_path / "inbox") as server:
        job = Mock(spec=Job, id=7)  # what a handler may ask its job for
        job.resource.return_value = MailServer(server.host, server.port)

        await send_receipt(job, order_id=order_id)
        await send_receipt(job, order_id=order_id)

    mails = read_mails(tmp_path / "inbox")
    assert [mail["Message-Id"] for mail in mails] == ["<receipt-7@shop.example.com>"] * 2
    assert "You paid 4.50" in str(mails[0])


async def test_the_order_is_gone(order_id: int) -> None:
    """What cannot succeed is not tried again."""
    with pytest.raises(Permanent, match="deleted meanwhile"):
        await send_receipt(Mock(spec=Job, id=7), order_id=order_id + 1)


async def test_a_worker_sends_it(order_id: int, dsn: str, tmp_path: Path) -> None:
    """From the row in the database to the mail in the mailbox."""
    inbox = tmp_path / "inbox"

    worker = await asyncio.create_subprocess_exec(
        *(JOBQ, "run", "examples.receipts:queue", "--until-empty", "--dsn", dsn),
        env={**os.environ, "RECEIPTS_MBOX": str(inbox)},
    )

    assert await worker.wait() == 0
    assert f"Receipt for order {order_id}" in [mail["Subject"] for mail in read_mails(inbox)]
