"""A listener that is lost again and again, also while nobody answers: each time it hears again."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.faults.proxy import Proxy
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs, eventually

POLL_S = 60.0
"""What is seen before half a minute has passed was not found by the poll."""

REFUSES_S = 2.0

LOSSES = ("terminated", "refused", "terminated", "cut", "refused all", "terminated")


async def listener(jobs: Jobs) -> int | None:
    """Return the process id of the listening backend, if there is one and it waits."""
    pid: int | None = await jobs.run(
        "select pid from pg_stat_activity where application_name = 'jobq listener' and datname = current_database()"
        " and state = 'idle' and query ~* 'listen'"
    )
    return pid


async def claims_sleep(jobs: Jobs) -> bool:
    """Say whether the claim loop has asked to be notified, and has looked at nothing for half a second."""
    asleep: bool = await jobs.run(
        "select exists (select from @schema@.sleeper where until > clock_timestamp()) and exists ("
        " select from pg_stat_activity where application_name = 'jobq claims' and datname = current_database()"
        " and state = 'idle' and state_change < clock_timestamp() - interval '0.5 s')"
    )
    return asleep


async def lose(loss: str, jobs: Jobs, proxy: Proxy) -> None:
    """Lose the listener's connection."""
    match loss:
        case "terminated":
            assert await jobs.terminate("jobq listener") == 1
        case "cut":
            proxy.cut("jobq listener")
        case _:
            proxy.close("jobq listener" if loss == "refused" else "")
            await asyncio.sleep(REFUSES_S)  # the fault's own length
            proxy.restore()


@pytest.mark.timeout(120)
async def test_a_notification_is_heard_after_each_loss_of_the_listener_however_it_was_lost(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F07: terminated, cut, refused for two seconds: a new connection listens each time, long before a poll would."""
    worker = await fleet.start(dsn=proxy.dsn, poll_s=POLL_S)
    listeners = [await eventually(lambda: listener(jobs))]

    for count, loss in enumerate(LOSSES, 1):
        await eventually(lambda: claims_sleep(jobs))
        await lose(loss, jobs, proxy)
        listeners.append(await eventually(lambda: listener(jobs), lambda pid: pid not in (None, listeners[-1])))
        await eventually(lambda: claims_sleep(jobs))
        (job_id,) = await add("nap", seconds=0.0)
        await ledger.until("start", of=job_id, limit_s=POLL_S / 3)
        await run.recovers()
        assert ledger.starts(job_id) == 1, f"loss {count}: {loss}"

    assert len(set(listeners)) == 1 + len(LOSSES)
    assert worker.lines("crashed") == []
    assert await worker.stop() == 0
