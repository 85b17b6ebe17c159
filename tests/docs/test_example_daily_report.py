"""The daily report of examples/daily_report.py: its head leads to a report, and a tick is about the day before it."""

from __future__ import annotations

import signal
from datetime import date
from typing import TYPE_CHECKING

from examples import daily_report
from jobq.core.states import State
from tests.docs.conftest import PROCESSES, Told, Work, discard, line_with
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn


@PROCESSES
async def test_its_head_leads_to_a_report(told: Told, db: Conn) -> None:
    """A worker declares the entry; it is shown, it is due at nine in Berlin, and it runs by hand."""
    migrate, sell, work, *looks, run = told.commands("daily_report")
    await told.run(migrate)
    assert "3 things were sold" in await told.run(sell)
    worker = await told.start(work)
    try:
        await line_with("recurring: new or changed: daily_report", worker)
        shown, due = [await told.run(look) for look in looks]
        assert "of daily_report is enqueued" in await told.run(run)
        assert ": 3 sales" in await line_with("report of", worker)
        worker.send_signal(signal.SIGINT)
        await worker.communicate()
        assert worker.returncode == 0
    finally:
        await discard(worker)

    assert "daily_report  well" in shown
    assert [line.split()[2] for line in due.splitlines()] == ["09:00"] * 3
    assert await db.fetchval("select sales from report") == 3


async def test_a_late_run_is_about_the_day_before_its_tick(database: str, db: Conn, jobs: Jobs, work: Work) -> None:
    """However late it is: also in the night of a change of clocks, in which the day before begins in another offset."""
    queue = daily_report.queue
    queue.use_dsn(database)
    await db.execute(daily_report.SCHEMA)
    await db.execute("insert into sale (sold_on, cents) values ('2026-03-28', 100), ('2026-03-29', 200)")
    await db.execute(
        """
        insert into jobq.job (kind, queue, payload, run_at, enqueued_at, headers)
        values ('daily_report', 'default', '{}', now(), now(), '{"tick": "2026-03-30T07:00:00+00:00"}')
        """
    )

    await work(queue)

    assert await jobs.count() == {State.DONE: 1}
    assert [tuple(row) for row in await db.fetch("select day, sales, cents from report")] == [
        (date(2026, 3, 29), 1, 200)
    ]
