"""A poll that is longer than a request to be notified counts: the request must not lapse while the loop sleeps."""

from __future__ import annotations

from jobq import Queue
from jobq.core.states import State
from tests.worker.conftest import Working
from tests.worker.observe import Jobs, eventually


async def test_a_request_to_be_notified_outlasts_the_poll_of_a_worker_that_polls_rarely(
    queue: Queue, jobs: Jobs, working: Working
) -> None:
    """F07: it is renewed at a look only, so with a poll of a minute it has to count for longer than a minute."""

    @queue.task("work")
    async def work() -> None: ...

    async with working(poll_s=60.0):
        await eventually(jobs.asleep)
        left_s = await jobs.run("select extract(epoch from until - clock_timestamp())::float8 from @schema@.sleeper")
        job = await queue.enqueue(work.bind())
        await jobs.become(job.id, State.DONE)

    assert left_s > 60 * 1.1  # the poll is jittered
