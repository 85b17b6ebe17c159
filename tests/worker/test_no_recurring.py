"""Who has no recurring entry, and who asks for one that is not there."""

from __future__ import annotations

import pytest

from jobq import JobqError, Queue, RecurringError
from jobq.core.states import State
from tests.worker.conftest import Working
from tests.worker.observe import Jobs, eventually


async def test_where_there_is_no_entry_there_is_one_look(queue: Queue, working: Working, jobs: Jobs) -> None:
    """Who does not use it pays a look at the start, and one a minute: nothing is read for its sake while jobs run."""

    @queue.task(kind="tidy", on_duplicate="harmless")
    async def tidy() -> None: ...

    async with working(recurring_s=0.02):
        for _ in range(30):
            await queue.enqueue(tidy.bind())
        await jobs.all_become(State.DONE, 30)
    # A backend reports its counts at its end.
    await eventually(jobs.backends, lambda left: left == [])

    scans = await jobs.run(
        "select pg_stat_get_numscans($name$@schema@.recurring$name$::regclass)"
        " + pg_stat_get_numscans($name$@schema@.recurring_look$name$::regclass)"
    )
    assert scans == 1


async def test_what_is_not_there_is_said(queue: Queue) -> None:
    """With the command that shows what is."""
    for change in (
        queue.recurring.remove("x"),
        queue.recurring.resume("x"),
        queue.recurring.run("x"),
        queue.recurring.next("x"),
        queue.recurring.pause("x", why="y"),
    ):
        with pytest.raises(JobqError, match="there is no recurring entry 'x': `jobq cron list`"):
            await change
    with pytest.raises(RecurringError, match="say why it is paused"):
        await queue.recurring.pause("x", why=" ")
