"""The account itself: it balances after a quiet run, and names the offender when a book says otherwise."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.account import Account, draw_up
from tests.faults.producer import Fate
from tests.faults.run import FaultRun, connected, fault_run


@pytest.fixture
async def run(dsn: str, tmp_path: Path) -> AsyncIterator[FaultRun]:
    """A fault run, in a database of its own on the server of all tests."""
    async with connected(dsn) as conn:
        await conn.execute("drop database if exists account with (force)")
        await conn.execute("create database account")
    async with fault_run(dsn.replace("/postgres?", "/account?"), tmp_path) as run:
        yield run


@pytest.fixture
async def quiet(run: FaultRun) -> FaultRun:
    """A run without faults that is over."""
    (worker,) = await run.start_workers(1)
    async with run.producer.producing():
        await run.producer.commits(12)
    await run.recovers()
    assert await worker.stop() == 0
    return run


async def drawn_up(run: FaultRun) -> Account:
    """Return the account of a run."""
    async with connected(run.dsn) as conn:
        return await draw_up(conn, producer=run.producer, ledger=run.ledger, workers=run.fleet.all)


def append(path: Path, **entry: Any) -> None:
    """Add a line to a book."""
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


async def test_a_quiet_run_balances_and_each_sentence_has_its_offender(quiet: FaultRun) -> None:
    """N3, N4: one book after the other is falsified, and the account says which job is wrong and how."""
    assert (await drawn_up(quiet)).offenders == []
    entries = quiet.producer.fates()
    token = next(token for token, entry in entries.items() if entry.fate is Fate.COMMITTED)
    undone = next(token for token, entry in entries.items() if entry.fate is Fate.ROLLED_BACK)
    (start,) = [one for one in quiet.ledger.effects("start") if one.token == token]
    (written,) = [one for one in quiet.ledger.effects("end") if one.token == "6"]  # it writes in its transaction
    said: list[str] = []

    async def offends(times: int = 1) -> None:
        found = (await drawn_up(quiet)).offenders
        said.extend(one for one in found if one not in said)
        assert len(found) == times, found

    # An effect of what was rolled back.
    ledger = quiet.ledger.path.read_bytes()
    append(quiet.ledger.path, **as_effect(start, id=10**6, token=undone))
    await offends()
    quiet.ledger.path.write_bytes(ledger)

    # A commit without an end.
    append(quiet.producer.path, token="lost", fate="committed", at=0.0)
    await offends()
    quiet.producer.path.write_text("".join(quiet.producer.path.read_text().splitlines(keepends=True)[:-1]))

    # A second run that nobody explains, and the first one's outcome on record.
    append(quiet.ledger.path, **as_effect(start, fence=start.fence + 1, attempt=2))
    await offends(2)
    quiet.ledger.path.write_bytes(ledger)

    # A transaction that has committed twice.
    async with connected(quiet.dsn) as conn:
        await conn.execute("insert into jobq.effects values ($1, 1)", written.id)
    await offends()

    expected = [
        "(rolled back) is nowhere and had 1 effects",
        "(committed) is nowhere and has no end",
        "ran again after Effect(what='start'",
        f"is done by {start.pid}, attempt 1; the last run was",
        f"has written [{written.fence}, 1], and its last run was",
    ]
    assert [wanted in one for wanted, one in zip(expected, said, strict=True)] == [True] * 5, said


def as_effect(effect: Any, **changes: Any) -> dict[str, Any]:
    """Return a line of the ledger like *effect*, but for *changes*."""
    fields = {name: getattr(effect, name) for name in effect.__struct_fields__}
    return fields | changes


async def test_each_run_needs_a_record_of_its_own_in_the_row(quiet: FaultRun) -> None:
    """N4: one that names its attempt and its worker; one too few, one too many and a strange one are offenders."""
    async with connected(quiet.dsn) as conn:
        ((job_id, worker_id),) = await conn.fetch("select id, worker_id from jobq.done order by id limit 1")
        (start,) = quiet.ledger.effects("start", of=job_id)
        append(quiet.ledger.path, **as_effect(start, fence=0))  # of a worker that gave it back, and took it again

        async def account(*attempts: int, type: str = "Drained") -> Account:
            records = [{"type": type, "attempt": attempt, "worker_id": str(worker_id)} for attempt in attempts]
            text = "update jobq.done set errors = $2::text::jsonb where id = $1"
            await conn.execute(text, job_id, json.dumps(records))
            return await drawn_up(quiet)

        assert offences(await account()) == ["ran again after"]
        assert offences(await account(2)) == ["ran again after", "no run is explained by it"]
        assert offences(await account(1, 1)) == ["no run is explained by it"]
        assert offences(await account(2, type="WorkerLost")) == ["ran again after"]
        assert offences(await account(1, type="WorkerLost")) == ["from which it was taken back"]
        explained = await account(1)

    assert explained.offenders == []
    assert explained.reasons == {"drain": 1}


def offences(account: Account) -> list[str]:
    """Return what the offenders of an account did."""
    known = ("ran again after", "no run is explained by it", "from which it was taken back")
    return [next((offence for offence in known if offence in one), one) for one in account.offenders]


async def test_a_job_that_is_still_waiting_is_an_offender(quiet: FaultRun) -> None:
    """N3: whoever draws up the account too early, or when a job is stuck, is told."""
    async with quiet.producer.producing():
        await quiet.producer.commits(2)

    found = (await drawn_up(quiet)).offenders

    assert found
    assert all("(committed) is ['waiting'] and has no end" in one for one in found)


async def test_what_a_worker_writes_that_was_frozen_past_its_lease_is_refused_and_the_account_balances(
    run: FaultRun,
) -> None:
    """F29, N4: it wakes up while others run its jobs, and finishes them too: the others' outcomes count."""
    run.producer.every_s, run.producer.step_s = 0.15, 0.4
    frozen, other = await run.start_workers()
    async with run.producer.producing():
        await run.producer.commits(20)

        frozen.send(signal.SIGSTOP)
        await other.says("errand .* was taken back")
        await run.producer.commits(5)
        frozen.send(signal.SIGCONT)
        await frozen.says("lost its lease")
    await run.recovers()

    account = await run.account()
    assert account.reasons["worker lost"] > 0
    assert [await worker.stop() for worker in (frozen, other)] == [0, 0]


async def test_what_a_drain_cancels_is_explained_by_its_row_when_it_is_done(run: FaultRun) -> None:
    """N4: a deploy that gives no grace: what it hands back runs again elsewhere, and the history says why."""
    run.producer.every_s, run.producer.step_s = 0.05, 0.3
    leaving = await run.fleet.start("--concurrency", "10", "--grace", "0")
    async with run.producer.producing():
        await run.ledger.until("start", 5, kind="errand")

        assert await leaving.stop() == 3
        (staying,) = await run.start_workers(1)
    await run.recovers()

    account = await run.account()
    assert account.reasons["drain"] > 0
    assert await staying.stop() == 0
