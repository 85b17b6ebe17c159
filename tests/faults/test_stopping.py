"""How a worker process ends (field reports A and F)."""

from __future__ import annotations

import asyncio
import signal
import time

from jobq.core.states import State
from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.faults.proxy import Proxy
from tests.worker.observe import Jobs, eventually


async def test_an_idle_worker_ends_with_0(fleet: Fleet, jobs: Jobs) -> None:
    """F05: a requested, completed drain is 0; nothing of the worker stays behind at the server."""
    worker = await fleet.start()

    code = await worker.stop()

    assert code == 0
    await eventually(jobs.backends, lambda found: found == [])
    assert await jobs.run("select count(*) from @schema@.worker") == 0


async def test_a_drain_that_runs_out_ends_with_3_and_hands_its_jobs_back(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F21, N4: five endless jobs and a grace of one second: over in three, they wait, no attempt used, and say why."""
    worker = await fleet.start("--grace", "1")
    ids = await add("nap", 5, seconds=600.0)
    await ledger.until("start", 5)

    stopped_at = time.monotonic()
    code = await worker.stop()

    assert time.monotonic() - stopped_at < 3.0, worker.log
    assert code == 3
    for job_id in ids:
        now = await jobs.get(job_id)
        assert (now.state, now.attempt, now.worker_id, now.records) == (State.WAITING, 0, None, [("Drained", 1)])
    assert len(ledger.effects("cancelled")) == 5


async def test_a_handler_that_ignores_its_cancellation_is_named_and_does_not_hold_the_process(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F23: the process ends within grace, cancel grace and five seconds, with 3."""
    worker = await fleet.start("--grace", "1", "--cancel-grace", "1")
    (job_id,) = await add("stubborn")
    await ledger.until("start")

    stopped_at = time.monotonic()
    code = await worker.stop()

    assert time.monotonic() - stopped_at < 1 + 1 + 5, worker.log
    assert code == 3
    assert worker.lines(f"stubborn {job_id} ignores its cancellation")


async def test_a_job_that_fits_the_grace_is_done_and_nothing_is_claimed_after_the_signal(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F22: a job of half a second finishes; twenty that come after the signal do not start."""
    worker = await fleet.start()
    (job_id,) = await add("nap", seconds=0.5)
    await ledger.until("start")

    worker.send(signal.SIGTERM)
    await worker.says("stopping: no more claims")
    late = await add("nap", 20, seconds=0.0)
    code = await worker.ends()

    assert code == 0
    assert (await jobs.get(job_id)).state is State.DONE
    assert [ledger.starts(one) for one in late] == [0] * 20


async def test_ctrl_c_drains_too(fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add) -> None:
    """F22: SIGINT is a request to drain, as SIGTERM is."""
    worker = await fleet.start()
    (job_id,) = await add("nap", seconds=0.5)
    await ledger.until("start")

    code = await worker.stop(signal.SIGINT)

    assert code == 0
    assert (await jobs.get(job_id)).state is State.DONE


async def test_a_second_signal_skips_the_grace_but_not_the_clean_up(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F22: the handler is cancelled once, and its clean-up of 0.5 s is not interrupted."""
    worker = await fleet.start("--grace", "30", "--cancel-grace", "3")
    (job_id,) = await add("tidy", seconds=0.5)
    await ledger.until("start")

    stopped_at = time.monotonic()
    worker.send(signal.SIGTERM)
    await worker.says("stopping: no more claims")
    code = await worker.stop()

    assert time.monotonic() - stopped_at < 3.0, worker.log
    assert code == 3
    assert [effect.what for effect in ledger.effects(of=job_id)] == ["start", "cancelled", "end"]
    assert (await jobs.get(job_id)).state is State.WAITING


async def test_a_last_attempt_that_is_drained_is_not_used_up(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F19: a deploy during the last attempt does not kill a good job."""
    (job_id,) = await add("nap", seconds=1.0)
    await jobs.run("update @schema@.job set max_attempts = 1 where id = $1", job_id)
    first = await fleet.start("--grace", "0")
    await ledger.until("start")

    assert await first.stop() == 3
    await fleet.start()
    await ledger.until("end", of=job_id)

    assert (await jobs.become(job_id, State.DONE)).attempt == 1


async def test_a_signal_at_any_point_of_the_start_ends_the_process(fleet: Fleet, jobs: Jobs) -> None:
    """F28: ten signals spread over the start: each process ends, and no connection is left."""
    workers = [await fleet.launch() for _ in range(2)]
    for step in range(10):
        await asyncio.sleep(0.2)  # the point of this test
        worker = workers.pop(0)
        code = await worker.stop()
        # Before there is an event loop the signal does what it does to any process.
        assert code in (0, -signal.SIGTERM), f"step {step}: {worker.log}"
        workers.append(await fleet.launch())

    for worker in workers:
        await worker.stop()
    await eventually(jobs.backends, lambda found: found == [])


async def test_a_database_that_does_not_come_ends_the_start_with_75(fleet: Fleet, proxy: Proxy) -> None:
    """F05: nothing was claimed, and the code says that waiting was all it did."""
    proxy.close()
    worker = await fleet.launch("--start-limit", "1", dsn=proxy.dsn)

    assert await worker.ends() == 75, worker.log


async def test_a_worker_waits_for_a_database_that_comes_late(
    fleet: Fleet, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F27: after a boot the database comes up later; the worker starts when it does."""
    proxy.close()
    worker = await fleet.launch(dsn=proxy.dsn)
    await add("nap", seconds=0.0)
    await worker.says("is not available")

    proxy.restore()
    await ledger.until("end")

    assert worker.lines(" started: queues ")
    assert await worker.stop() == 0
