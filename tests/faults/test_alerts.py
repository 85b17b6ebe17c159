"""A worker that dies while it tells of an incident, and those that are there when it does."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.conftest import Add
from tests.faults.fleet import SHORT_LEASE, Fleet
from tests.faults.ledger import Ledger
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs, eventually

LEASE_S = 60.0
"""How long an incident is the worker's that tells of it."""


async def left_s(jobs: Jobs) -> float:
    """Return what is left of the lease of the only incident, by the database's clock."""
    found: float = await jobs.run(
        "select extract(epoch from telling_until - clock_timestamp())::float8 from @schema@.incident"
    )
    return found


@pytest.mark.leaves_jobs
async def test_a_worker_that_is_killed_in_its_hook_loses_no_alert(
    fleet: Fleet, run: FaultRun, ledger: Ledger, jobs: Jobs, add: Add, tmp_path: Path
) -> None:
    """The other tells, when the lease of the one that died is over, and not before; whoever comes then is not told."""
    hangs = tmp_path / "hangs"
    hangs.touch()
    workers = {
        worker.pid: worker
        for worker in [await fleet.start(app="app_alerts:queue", overview_s=0.2, **SHORT_LEASE) for _ in range(2)]
    }
    (job_id,) = await add("fail")
    (first,) = await ledger.until("telling")

    workers.pop(first.pid).send(signal.SIGKILL)
    hangs.unlink()
    (survivor,) = workers.values()
    await survivor.says("is gone: 0 jobs were taken back")
    held = ledger.effects("telling")
    held_s = await left_s(jobs)
    await jobs.script("update @schema@.incident set telling_until = clock_timestamp()")
    (told,) = await ledger.until("told")
    await eventually(lambda: jobs.run("select told_at is not null from @schema@.incident"))
    late = await fleet.start(app="app_alerts:queue", overview_s=0.2, **SHORT_LEASE)
    looked_at = await jobs.run("select looked_at from @schema@.dead_watch")
    await eventually(lambda: jobs.run("select looked_at from @schema@.dead_watch"), looked_at.__ne__)

    assert held == [first]
    assert 0.0 < held_s <= LEASE_S
    assert (told.id, told.pid, told.token) == (job_id, survivor.pid, "1 LookupError")
    assert survivor.lines(r"alerts: app_alerts\.tell was told \(dead: fail\)")
    assert len(ledger.effects("telling")) == 2
    assert [await worker.stop() for worker in (survivor, late)] == [0, 0]


@pytest.mark.leaves_jobs
async def test_a_worker_whose_clock_is_wrong_tells_no_sooner_and_no_more_often(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F36: leases, pauses and quiet periods are those of the database's clock: an hour off, they are the same."""
    for off_s in (3600.0, -3600.0, 0.0):
        await fleet.start(app="app_alerts:queue", overview_s=0.2, clock_ahead_s=off_s)

    for _ in range(3):
        await add("fail")
    await eventually(
        lambda: jobs.run("select (facts ->> 'letters')::int from @schema@.incident"), lambda letters: letters == 3
    )
    await ledger.until("told")
    looked_at = await jobs.run("select looked_at from @schema@.dead_watch")
    await eventually(lambda: jobs.run("select looked_at from @schema@.dead_watch"), looked_at.__ne__)

    assert len(ledger.effects("telling")) == len(ledger.effects("told")) == 1
    assert await jobs.run(
        "select told_at between clock_timestamp() - interval '1 min' and clock_timestamp() from @schema@.incident"
    )
