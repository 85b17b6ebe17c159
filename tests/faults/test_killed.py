"""What becomes of jobs whose worker is killed (field reports D and E)."""

from __future__ import annotations

import asyncio
import signal

import pytest

from jobq.core.states import State
from tests.faults.conftest import Add
from tests.faults.fleet import SHORT_LEASE, Fleet
from tests.faults.ledger import Ledger, now
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs

LEASE_S = 3.0


async def errors_of(jobs: Jobs, job_id: int) -> list[str]:
    """Return the types of the errors of a job that is not done yet."""
    return [error["type"] for error in (await jobs.get(job_id)).errors]


async def test_the_jobs_of_a_killed_worker_run_elsewhere_within_its_lease_and_four_seconds(
    fleet: Fleet, run: FaultRun, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F13: five jobs run when their worker is killed; a second worker finishes them, each at its second attempt."""
    first = await fleet.start()
    ids = await add("nap", 5, seconds=2.0)
    await ledger.until("start", 5)
    second = await fleet.start()

    first.send(signal.SIGKILL)
    killed_at = now()
    again = [effect for effect in await ledger.until("start", 10) if effect.pid == second.pid]

    errors = [await errors_of(jobs, job_id) for job_id in ids]
    await run.recovers()
    assert max(effect.at for effect in again) - killed_at < LEASE_S + 4.0
    assert errors == [["WorkerLost"]] * 5
    assert sorted(effect.id for effect in again) == sorted(ids)
    assert {(await jobs.get(job_id)).attempt for job_id in ids} == {2}
    assert len(second.lines(r"nap \d+ was taken back: its worker fell silent during attempt 1")) == 5


async def test_a_worker_that_is_started_again_at_once_takes_back_the_jobs_of_its_predecessor(
    fleet: Fleet, run: FaultRun, ledger: Ledger, add: Add
) -> None:
    """F14: on the same host the new process is no heir: the lease of the old one lapses, and the job is recovered."""
    first = await fleet.start(**SHORT_LEASE)
    (job_id,) = await add("nap", seconds=0.5)
    await ledger.until("start")

    first.send(signal.SIGKILL)
    await fleet.start(**SHORT_LEASE)
    await run.recovers()

    assert ledger.starts(job_id) == 2


async def test_a_dead_workers_jobs_do_not_fill_the_concurrency_of_the_living(
    fleet: Fleet, run: FaultRun, ledger: Ledger, add: Add
) -> None:
    """F15: with one slot a queue, the job of a killed worker and two that wait behind it are all finished."""
    first = await fleet.start("--concurrency", "1", **SHORT_LEASE)
    ids = await add("nap", 3, seconds=0.3)
    await ledger.until("start")

    first.send(signal.SIGKILL)
    await fleet.start("--concurrency", "1", **SHORT_LEASE)
    await run.recovers()

    assert {effect.id for effect in ledger.effects("end")} == set(ids)


@pytest.mark.timeout(90)
async def test_a_job_that_kills_its_worker_three_times_is_a_dead_letter_and_an_innocent_beside_it_is_done(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F18: two workers that are started again whenever they die: three starts and a dead letter that says why."""
    (innocent,) = await add("nap", seconds=0.7)
    (poison,) = await add("poison")

    async def keep_alive() -> None:
        while True:
            await (await fleet.launch(**SHORT_LEASE)).ends(60)

    async with asyncio.TaskGroup() as group:
        keepers = [group.create_task(keep_alive()) for _ in range(2)]
        await ledger.until("start", 3, of=poison, limit_s=60)
        dead = await jobs.become(poison, State.DEAD)
        await ledger.until("end", of=innocent)
        await jobs.become(innocent, State.DONE)
        for keeper in keepers:
            keeper.cancel()

    message = await jobs.run("select error_message from @schema@.dead_letter where id = $1", poison)
    assert ledger.starts(poison) == 3
    assert message == "killed its worker 3 times, the last time while it ran alone"
    assert {error["type"] for error in dead.errors} == {"WorkerLost"}
