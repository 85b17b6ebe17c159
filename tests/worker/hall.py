"""Jobs that a test keeps as long as it likes, and suspects among them."""

from __future__ import annotations

import asyncio

from jobq import Job, Queue
from jobq.core.job import JobId
from tests.db.rows import Rows
from tests.worker.observe import until_true


class Hall:
    """The handler of kind `run`: who comes and goes, in order, and who may go."""

    def __init__(self, queue: Queue) -> None:
        self.log: list[tuple[str, str]] = []
        self.inside: set[str] = set()
        self.may_go = {name: asyncio.Event() for name in ("first", "second", "suspect", "later")}

        @queue.task("run")
        async def run(job: Job, name: str) -> None:
            self.inside.add(name)
            self.log.append(("in", name))
            try:
                await self.may_go[name].wait()
            finally:
                self.inside.remove(name)
                self.log.append(("out", name))

        self.bind = run.bind

    async def has(self, *names: str) -> None:
        """Wait until exactly these are inside."""
        await until_true(lambda: self.inside == set(names))

    async def has_logged(self, count: int) -> None:
        """Wait until so many have come or gone."""
        await until_true(lambda: len(self.log) == count)


async def suspect(rows: Rows, crashes: int = 2, lone: int = 0) -> JobId:
    """Enqueue the suspect: it has crashed so often already."""
    job_id = await rows.waiting(kind="run", queue="default", payload='{"name": "suspect"}', delay_s=3600.0)
    await rows.run(
        "update @schema@.job set crashes = $2, lone_crashes = $3, attempt = $2, run_at = now() where id = $1",
        job_id,
        crashes,
        lone,
    )
    await rows.run("select @schema@.notify_sleepers('{default}')")
    return job_id
