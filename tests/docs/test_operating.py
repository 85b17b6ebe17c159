"""The five incidents of docs/operating.md, played: each command of the page prints what the page shows."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq.embedded import temporary
from tests.docs.conftest import PROCESSES, REPOSITORY
from tests.docs.night import FIRST_ID, PAGE, MailServer, Night, Operator

if TYPE_CHECKING:
    from tests.conftest import Conn

RULES = REPOSITORY / "examples" / "deploy" / "prometheus-rules.yml"

DONE = "select coalesce(sum(done), 0)::int from jobq.v1_rates where window_s = 300"
ENDED = "select coalesce(sum(done + dead), 0)::int from jobq.v1_rates where window_s = 300"
RUNNING = "select sum(running)::int from jobq.v1_queue_depth"
ALIVE = "select count(*)::int from jobq.v1_workers where is_alive"

pytestmark = PROCESSES


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A server with the settings of a real one: `jobq doctor` has nothing to say about it."""
    with temporary() as server:
        yield server.dsn


@pytest.fixture
async def night(database: str, db: Conn, tmp_path: Path) -> AsyncIterator[Night]:
    """A night, with nothing running yet."""
    mail = MailServer()
    server = await asyncio.start_server(mail.answer, "127.0.0.1", 0)
    await db.execute(f"alter table jobq.job alter column id restart with {FIRST_ID}")
    night = Night(database, db, tmp_path, mail, server.sockets[0].getsockname()[1])
    yield night
    await night.discard()
    server.close()


async def test_1_the_backlog_grows(night: Night) -> None:
    """A newsletter to 200 customers, four slots, and a receipt behind them."""
    page = Operator(night, 1)
    night.mail.takes_s = 0.4
    night.mail.let_pass(12)
    await night.enqueue("send_newsletter", 200, queue="mail", field="customer_id", minutes=14)
    await night.enqueue("send_receipt", 1, queue="mail", field="order_id", minutes=2)
    await night.worker("worker-1:812", "--concurrency", "mail=4", http="worker-1:9101")
    await night.until(DONE, 12)
    await night.until(RUNNING, 4)

    await page.types("jobq stats")
    await page.types("curl")
    await page.types("jobq jobs --state running")
    await page.types("jobq explain 4911")

    night.mail.let_pass()
    await night.worker("worker-2:645", "--concurrency", "mail=40")
    await night.until(DONE, 201)
    await page.types("jobq stats")
    page.ends()


async def test_2_one_kind_fails(night: Night) -> None:
    """The mail server takes newsletters and refuses receipts, until somebody has spoken with its owner."""
    page = Operator(night, 2)
    night.mail.refused["receipt"] = "550 5.7.1 sender receipts@shop.example.com is suspended"
    night.mail.let_pass()
    await night.enqueue("send_newsletter", 12, queue="mail", field="customer_id", minutes=0)
    await night.enqueue("send_receipt", 6, queue="mail", field="order_id", minutes=0)
    worker = await night.worker("worker-1:812")
    await night.until(ENDED, 18)

    page.finds(worker)
    await page.types("jobq stats")
    await page.types("jobq dead list", in_any_order=True)
    await page.types("jobq dead show 4723")

    night.mail.refused.clear()
    await page.types("jobq dead redrive 4723")
    await night.until(ENDED, 19)
    await page.types("jobq explain 4723")
    await page.types("jobq dead redrive")
    await night.until(ENDED, 24)
    await page.types("jobq stats")
    page.ends()


async def test_3_workers_die(night: Night) -> None:
    """One of two is killed, then the other; a third takes up what they held."""
    page = Operator(night, 3)
    await night.enqueue("send_receipt", 20, queue="mail", field="order_id", minutes=3)
    first = await night.worker("worker-1:812", "--concurrency", "mail=3")
    await night.until(RUNNING, 3)
    second = await night.worker("worker-2:645", "--concurrency", "mail=3")
    await night.until(RUNNING, 6)

    first.send(signal.SIGKILL)
    await second.says("is gone: 3 jobs")
    await night.until("select ready::int from jobq.v1_queue_depth where queue = 'mail'", 17)
    page.finds(second)
    await page.types("jobq jobs 4711")
    second.send(signal.SIGKILL)
    await night.until(ALIVE, 0)
    await page.types("jobq stats")
    await page.types("psql")
    await page.types("jobq explain 4714")
    await page.types("jobq doctor")

    night.mail.let_pass()
    await night.worker("worker-1:977", "--concurrency", "mail=3")
    await night.until(DONE, 20)
    await page.types("jobq stats")
    page.ends()


async def test_4_the_database_is_slow(night: Night) -> None:
    """Somebody makes an index in a transaction, and goes to bed: nothing can be claimed, and no outcome be written."""
    page = Operator(night, 4)
    await night.enqueue("send_receipt", 30, queue="mail", field="order_id", minutes=3)
    deadline = {"statement_deadline_s": 1.0}
    worker = await night.worker("worker-1:812", "--concurrency", "mail=4", http="worker-1:9101", settings=deadline)
    await night.until(RUNNING, 4)
    held = await asyncpg.connect(night.dsn, server_settings={"application_name": "psql"})
    try:
        await held.execute("begin")
        await held.execute("create index on jobq.job (kind)")
        night.told[str(held.get_server_pid())] = "21507"
        night.mail.let_pass()
        await worker.says("trying on")
        await night.until_printed("curl -s http://worker-1:9101/readyz", "claims of mail, claims of media, settling")

        page.finds(worker)
        await page.types("curl")
        await page.types("curl")
        await page.types("jobq doctor")
        await page.types("jobq stats")
        await page.types("psql")
        await worker.says("the database is back")
        page.finds(worker)
    finally:
        held.terminate()
    await night.until(DONE, 30)
    await page.types("jobq stats")
    page.ends()


async def test_5_a_poison_job(night: Night, tmp_path: Path) -> None:
    """One photo of four kills each worker that takes it, until it is put aside; the other three are made."""
    page = Operator(night, 5)
    tmp_path.joinpath("huge-3").touch()
    await night.enqueue("resize_photo", 4, queue="media", field="photo_id", minutes=1)
    lease = {"worker_lease_s": 1.5}
    for number in range(3):
        worker = await night.worker(f"worker-1:{812 + number}", settings=lease)
        assert await worker.ends() == -signal.SIGKILL
    worker = await night.worker("worker-1:977", settings=lease)
    await worker.says("is a dead letter")
    await night.until("select count(*)::int from jobq.done", 3)

    page.finds(worker)
    await page.types("jobq dead list")
    await page.types("jobq explain 4713")
    await page.types("jobq dead show 4713")

    tmp_path.joinpath("huge-3").unlink()
    await page.types("jobq dead redrive 4713")
    await night.until("select count(*)::int from jobq.done", 4)
    await page.types("jobq explain 4713")
    page.ends()


def test_each_alert_leads_to_an_incident() -> None:
    """The table at the top of the page names each alert of examples/deploy, and where to go."""
    table = PAGE.read_text("utf-8").partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "](#" in line]

    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text("utf-8")))
    assert {name for row in rows for name in re.findall(r"`(Jobq\w+)`", row)} == alerts


def test_each_number_to_watch_is_there() -> None:
    """A metric of docs/telemetry.md, or a view of docs/views.md."""
    numbers = PAGE.read_text("utf-8").partition("\n## Numbers to watch\n")[2]
    known = {
        name: (REPOSITORY / "docs" / document).read_text("utf-8")
        for document, pattern in (("telemetry.md", r"\bjobq_\w+"), ("views.md", r"\bv1_\w+"))
        for name in re.findall(pattern, numbers)
    }

    assert len(known) > 12
    assert [name for name, text in known.items() if f"`{name}`" not in text] == []
