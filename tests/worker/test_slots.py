"""A worker says on record how many slots it has, so that `explain` knows when they are taken."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from jobq import Queue
from jobq.core.states import State
from jobq.db.reports import Reports
from tests.db.explained import numbers
from tests.worker.conftest import Working
from tests.worker.observe import Jobs, eventually

if TYPE_CHECKING:
    from tests.db.rows import Rows


async def test_a_worker_tells_which_kinds_share_how_many_slots(queue: Queue, rows: Rows, working: Working) -> None:
    """By queue; `async def` and `def` handlers have slots apart, as many of each."""

    @queue.task("a", queue="mail")
    async def a() -> None: ...

    @queue.task("b", queue="mail")
    def b() -> None: ...

    @queue.task("c")
    async def c() -> None: ...

    async with working(slots={"mail": 3}, default_slots=7) as running:
        told = json.loads(await rows.value("select slots from @schema@.worker"))
        total = await rows.value("select slots from @schema@.v1_workers")
        parts = running.worker._parts

    by_queue = {"mail": 3, "default": 7}
    assert told == [{"kinds": ["a", "c"], "by_queue": by_queue}, {"kinds": ["b"], "by_queue": by_queue}]
    assert parts is not None
    assert total == parts.slots == 20


async def test_a_job_waits_for_the_slot_of_another(queue: Queue, jobs: Jobs, rows: Rows, working: Working) -> None:
    """While it is taken that is the reason, though a slot for handlers in threads is free."""
    release = asyncio.Event()

    @queue.task("wait")
    async def wait() -> None:
        await release.wait()

    @queue.task("in_thread")
    def in_thread() -> None: ...

    async with working(default_slots=1):
        first = await queue.enqueue(wait.bind())
        await jobs.become(first.id, State.RUNNING)
        second = await queue.enqueue(wait.bind())
        found = await eventually(
            lambda: Reports(queue.schema).explain_job(rows.conn, second.id), lambda it: it.reason == "slots"
        )
        release.set()
        await jobs.become(second.id, State.DONE)

    assert (numbers(found)["slots"], numbers(found)["held"]) == (1, 1)
