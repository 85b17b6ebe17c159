"""A database that is away, in each of the ways in which it can be (field reports A, D and S)."""

from __future__ import annotations

import asyncio
import signal

import pytest

from jobq import Queue
from jobq.core.states import State
from jobq.db import pools
from jobq.errors import DatabaseUnavailableError
from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger, now
from tests.faults.proxy import Proxy
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs, eventually

HOLE_S = 5.0


async def test_after_a_black_hole_of_five_seconds_all_jobs_are_done(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, add: Add
) -> None:
    """F01: sockets that stay open and say nothing: the worker replaces them, and is back within ten seconds."""
    worker = await fleet.start("--concurrency", "4", dsn=proxy.dsn, worker_lease_s=12.0)
    early = await add("nap", 8, seconds=0.5)
    await ledger.until("start", 2)

    proxy.black_hole()
    late = await add("nap", 4, seconds=0.1)
    await asyncio.sleep(HOLE_S)  # the fault's own length; nothing is waited for
    proxy.restore()
    await ledger.until("end", 12, limit_s=10)
    await run.recovers()

    assert [ledger.starts(one) for one in (*early, *late)] == [1] * 12
    assert await worker.stop() == 0


async def test_an_outage_is_said_once_and_so_is_its_end(fleet: Fleet, run: FaultRun, proxy: Proxy, add: Add) -> None:
    """F01: one line that the database is unreachable, one that it is back, however many loops notice."""
    worker = await fleet.start(dsn=proxy.dsn)

    proxy.close()
    await worker.says("is not available")
    await add("nap", seconds=0.1)
    await asyncio.sleep(2.0)  # the fault's own length
    proxy.restore()
    await run.recovers()
    await worker.says("is back after")
    await worker.stop()

    assert len(worker.lines("is not available")) == 1, worker.log
    assert len(worker.lines("is back after")) == 1, worker.log


async def test_what_finished_while_the_database_was_closed_is_written_once(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F86: the handlers succeed while nobody can write it down; their jobs are done after one run."""
    worker = await fleet.start(dsn=proxy.dsn, worker_lease_s=12.0)
    ids = await add("nap", 5, seconds=1.0)
    await ledger.until("start", 5)

    proxy.close()
    await ledger.until("end", 5)
    await asyncio.sleep(2.0)  # the fault's own length
    assert (await jobs.count())[State.RUNNING] == 5
    proxy.restore()
    await run.recovers()

    assert [ledger.starts(one) for one in ids] == [1] * 5
    assert worker.lines("lost its lease") == []


async def test_what_finished_before_an_outage_longer_than_the_lease_is_still_written_once(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, add: Add
) -> None:
    """F86: after an outage everybody gets to renew first, so a second worker leaves the finished jobs alone."""
    first, second = await fleet.start(dsn=proxy.dsn), await fleet.start(dsn=proxy.dsn)
    ids = await add("nap", 5, seconds=1.0)
    await ledger.until("start", 5)

    proxy.close()
    await ledger.until("end", 5)
    await first.says("the worker's lease has lapsed")
    await second.says("the worker's lease has lapsed")
    proxy.restore()
    await run.recovers()

    assert [ledger.starts(one) for one in ids] == [1] * 5, first.log + "\n" + second.log


async def test_a_claim_whose_answer_is_lost_is_handed_back_with_its_attempt(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F17: the claim committed and nobody heard of it: the worker that asked releases the rows by itself."""
    worker = await fleet.start(dsn=proxy.dsn, job_lease_s=60.0)

    proxy.swallow_answer("jobq claims", holding=b"nap")
    ids = await add("nap", 3, seconds=0.1)
    await proxy.swallowed()
    assert (await jobs.count())[State.RUNNING] == 3
    await run.recovers()

    assert worker.lines("handed back 3 jobs of a claim whose answer was never seen")
    assert {effect.attempt for effect in ledger.effects("start")} == {1}
    assert {effect.fence for effect in ledger.effects("start")} == {2}
    assert [ledger.starts(one) for one in ids] == [1] * 3


async def test_a_slow_database_costs_time_and_nothing_else(
    fleet: Fleet, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F01: packets that take 50 ms longer each way cost no lease and no run."""
    worker = await fleet.start("--concurrency", "20", dsn=proxy.dsn)

    proxy.delay(0.05)
    ids = await add("nap", 60, seconds=0.5)
    await ledger.until("end", 60)

    await jobs.all_become(State.DONE, 60)
    assert [ledger.starts(one) for one in ids] == [1] * 60
    assert worker.lines("WARNING|ERROR") == []


@pytest.mark.leaves_jobs
async def test_a_second_signal_during_a_black_hole_skips_the_grace(
    fleet: Fleet, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F23: who asks twice does not wait for the grace, with or without a database."""
    worker = await fleet.start("--grace", "30", "--cancel-grace", "1", dsn=proxy.dsn, worker_lease_s=60.0)
    await add("nap", seconds=60.0)
    await ledger.until("start")

    proxy.black_hole()
    stopped_at = now()
    worker.send(signal.SIGTERM)
    await worker.says("stopping: no more claims")
    code = await worker.stop()

    assert now() - stopped_at < 1 + 5 + 1, worker.log
    assert code == 3


async def test_a_claim_that_arrives_after_its_worker_gave_it_up_comes_back_by_the_jobs_lease(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F17: a claim is stuck on its way, is asked for anew, and takes a job for a worker that no longer waits for it."""
    worker = await fleet.start("--concurrency", "1", dsn=proxy.dsn, job_lease_s=4.0)
    await eventually(jobs.asleep)
    proxy.deafen("jobq claims")
    (running,) = await add("nap", seconds=3.0)
    await ledger.until("start", of=running)
    (taken,) = await add("nap", seconds=0.1)

    proxy.restore()
    await eventually(lambda: jobs.get(taken), lambda now: now.state is State.RUNNING)
    assert ledger.starts(taken) == 0
    await ledger.until("end", of=taken, limit_s=4.0 + 2 * 1.0 + 2.0 + 2.0)
    await run.recovers()

    assert [ledger.starts(one) for one in (running, taken)] == [1, 1]
    assert worker.lines("lost its lease") == []


async def test_an_enqueue_into_a_black_hole_ends_and_no_connection_of_its_time_is_used_again(
    proxy: Proxy, schema: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F01: on the own pool: whoever enqueues is told that there was no answer, and the next one gets through."""
    monkeypatch.setattr(pools, "LEND_S", 1.0)
    async with Queue(proxy.dsn, schema=schema) as queue:
        await asyncio.gather(*(queue.enqueue("nap", {"seconds": 0.0}, queue="default") for _ in range(3)))

        proxy.deafen("jobq handlers")
        with pytest.raises(DatabaseUnavailableError, match="no answer in time"):
            await queue.enqueue("nap", {"seconds": 0.0}, queue="default")
        await asyncio.gather(*(queue.enqueue("nap", {"seconds": 0.0}, queue="default") for _ in range(3)))

    await jobs.all_become(State.WAITING, 6)
