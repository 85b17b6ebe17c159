"""The page about alerts: its example mails for real, and its tables are those of the code."""

from __future__ import annotations

import asyncio
import re
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from examples.mail_server import read_mails, run_mail_server
from jobq import BacklogAlert, DeadAlert, Permanent, Queue
from jobq.settings import WorkerSettings
from jobq.telemetry.events import AlertTold
from jobq.worker.supervisor import Worker
from tests.docs.snippets import REPOSITORY, run, snippets
from tests.worker.observe import Events

PAGE = "docs/alerts.md"


async def test_the_example_mails_what_has_died_and_what_is_behind(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over SMTP, from a worker that goes on with other jobs."""
    (app,) = snippets(PAGE, "python")
    names: dict[str, Any] = {"__name__": "app"}
    await run(app, names)
    queue: Queue = names["queue"]
    queue.use_dsn(database)

    @queue.task("charge_card", on_duplicate="harmless")
    async def charge_card() -> None:
        raise Permanent("the card has expired")

    seen = Events()
    worker = Worker(queue, WorkerSettings(overview_s=0.1, poll_s=0.05), emit=seen.emit)
    async with run_mail_server(tmp_path / "night.mbox") as server, queue:
        monkeypatch.setenv("SMTP_HOST", server.host)
        monkeypatch.setenv("SMTP_PORT", str(server.port))
        pool = await queue.pool()
        await queue.enqueue("charge_card", queue="nobodys")
        await pool.execute("update jobq.job set run_at = now() - interval '1 hour'")
        running = asyncio.create_task(worker.run())
        await seen(AlertTold)
        job = await queue.enqueue("charge_card")
        await seen(AlertTold, nth=2)
        worker.stop()
        await running

    def read(mail: Message) -> tuple[str, str]:
        return mail["Subject"], bytes(mail.get_payload(decode=True)).decode()

    (behind, figures), (dead, error) = map(read, read_mails(tmp_path / "night.mbox"))
    assert behind == "behind: nobodys"
    assert re.match(r"1 jobs are ready in nobodys, the oldest for 36\d\d s; 0 workers serve it\n", figures)
    assert dead == "jobs die: charge_card"
    assert f"the latest {job.id}: permanent failure, jobq.errors.Permanent: the card has expired\n" in error


@pytest.mark.parametrize("alert", [DeadAlert, BacklogAlert])
def test_each_field_of_an_alert_is_on_the_page(alert: type[DeadAlert | BacklogAlert]) -> None:
    """In its table, and no other."""
    text = (REPOSITORY / PAGE).read_text("utf-8")
    found = re.search(rf"<!-- {alert.__name__}.*?-->(.*?)<!-- /{alert.__name__} -->", text, re.DOTALL)
    assert found is not None
    firsts = [line.split("|")[1] for line in found[1].splitlines() if line.startswith("| `")]

    documented = [name for first in firsts for name in re.findall(r"`(\w+)`", first)]

    assert sorted(documented) == sorted(alert.__struct_fields__)
