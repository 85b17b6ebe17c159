"""Workers that live and say nothing, and workers that only seem to (field reports F, G and H)."""

from __future__ import annotations

import asyncio
import signal

from jobq.core.states import State
from tests.faults.conftest import Add
from tests.faults.fleet import SHORT_LEASE, Fleet
from tests.faults.ledger import Ledger
from tests.faults.proxy import Proxy
from tests.worker.observe import Jobs


async def test_a_worker_that_was_frozen_past_its_lease_writes_nothing(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F29: frozen past its lease and thawed, it settles nothing and its handler's transaction is refused."""
    first, second = await fleet.start(**SHORT_LEASE), await fleet.start(**SHORT_LEASE)
    second.send(signal.SIGSTOP)  # so that the first one gets the jobs
    (nap,) = await add("nap", seconds=0.5)
    (write,) = await add("write", seconds=0.5)
    await ledger.until("start", 2)
    first.send(signal.SIGSTOP)
    second.send(signal.SIGCONT)

    await ledger.until("start", 4)
    await ledger.until("end", 2)
    await jobs.all_become(State.DONE, 2)
    first.send(signal.SIGCONT)
    await first.says("lost its lease at attempt 1: nothing was written", 2)

    assert [(effect.pid, effect.attempt) for effect in ledger.effects("start", of=nap)] == [
        (first.pid, 1),
        (second.pid, 2),
    ]
    assert await jobs.run("select array_agg(job_id) from @schema@.effects") == [write]
    assert await first.stop() == 0
    assert {(await jobs.get(one)).attempt for one in (nap, write)} == {2}


async def test_a_job_that_lasts_four_leases_starts_once(fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add) -> None:
    """F31: a live worker's job is not reclaimed, however long it runs and whoever else looks for work."""
    await fleet.start(**SHORT_LEASE)
    (job_id,) = await add("nap", seconds=6.0)
    await ledger.until("start")
    await fleet.start(**SHORT_LEASE)

    await ledger.until("end", of=job_id)

    await jobs.become(job_id, State.DONE)
    assert ledger.starts(job_id) == 1


async def test_a_handler_that_blocks_the_loop_for_three_leases_loses_no_job(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F34: with a second worker present every job starts once, and a warning names the kind and the line."""
    first = await fleet.start("--concurrency", "4", **SHORT_LEASE)
    naps = await add("nap", 3, seconds=0.5)
    await ledger.until("start", 3)
    (blocking,) = await add("block", seconds=4.5)
    await ledger.until("start", of=blocking)
    second = await fleet.start(**SHORT_LEASE)

    await ledger.until("end", of=blocking)
    await jobs.all_become(State.DONE, 4)

    (warning,) = first.lines("has blocked the event loop")
    assert f"block {blocking} has blocked" in warning
    assert "app.py:" in warning
    assert warning.endswith(" in block")
    assert [ledger.starts(one) for one in (*naps, blocking)] == [1, 1, 1, 1]
    assert second.lines("taken back") == []


async def test_a_drain_that_lasts_longer_than_the_lease_keeps_it(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F26: the heartbeat goes on while a stopping worker finishes its job, so nobody else takes it."""
    first = await fleet.start("--grace", "15", **SHORT_LEASE)
    (job_id,) = await add("nap", seconds=5.0)
    await ledger.until("start")
    second = await fleet.start(**SHORT_LEASE)

    assert await first.stop() == 0

    await jobs.become(job_id, State.DONE)
    assert ledger.starts(job_id) == 1
    assert second.lines("taken back") == []


async def test_a_worker_whose_heartbeat_fails_stops_claiming_and_hands_its_jobs_back(
    fleet: Fleet, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F32: once its lease may have lapsed it cancels and releases what runs, and claims nothing until it beats."""
    worker = await fleet.start(dsn=proxy.dsn)
    (early,) = await add("nap", seconds=20.0)
    await ledger.until("start")

    proxy.black_hole("jobq heartbeat")
    (cancelled,) = await ledger.until("cancelled", of=early)
    (late,) = await add("nap", seconds=0.1)
    handed_back = await jobs.become(early, State.WAITING)

    assert handed_back.attempt == 0
    assert handed_back.records == [("LeaseLapsed", 1)]
    assert worker.lines("the worker's lease has lapsed: 1 running jobs are cancelled")
    await asyncio.sleep(2.0)  # four polls, at none of which it may claim
    assert (await jobs.get(late)).fence == 0

    proxy.restore()
    await ledger.until("end", of=late)
    await jobs.become(late, State.DONE)
    assert ledger.starts(early) == 2
    assert cancelled.attempt == 1
