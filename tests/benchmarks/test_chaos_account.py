"""What the benchmark `chaos` finds wrong, and how it measures a recovery: on lives and faults made by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from benchmarks.chaos_account import Account, draw_up, explain
from benchmarks.chaos_books import Call, Life, Record
from benchmarks.chaos_faults import LATEST, What, plan
from benchmarks.chaos_recovery import Fault, Outage, Recovery, recoveries

PIDS = {"a": 1, "b": 2, "c": 3}


def call(attempt: int, fence: int, worker: str, at: float = 0.0) -> Call:
    """Return a call by one of three workers."""
    return Call(attempt, fence, worker, at, PIDS[worker])


def record(attempt: int, worker: str, type_: str = "WorkerLost", at: float = 0.0) -> Record:
    """Return what is on record of the end of an attempt."""
    return Record(datetime.fromtimestamp(at, UTC), attempt, worker, type_)


def life(calls: list[Call], records: list[Record], **changed: object) -> Life:
    """Return a job that is done by its last call, but for what is *changed*."""
    given: dict[str, object] = {
        "order_id": 7,
        "job_id": 70,
        "kind": "touch",
        "outcome": "done",
        "attempt": calls[-1].attempt if calls else 1,
        "worker_id": calls[-1].worker_id if calls else "a",
        "ended_at": None,
        "records": records,
        "calls": calls,
        "fences": [],
    }
    return Life(**(given | changed))  # type: ignore[arg-type]


async def account_of(*lives: Life) -> Account:
    """Draw up the account of *lives*."""

    async def given() -> AsyncIterator[Life]:
        for one in lives:
            yield one

    return await draw_up(given())


FIRST, SECOND, THIRD = call(1, 1, "a"), call(1, 2, "a"), call(2, 3, "b")


@pytest.mark.parametrize(
    ("records", "by_reason", "unexplained"),
    [
        ([record(1, "a", "Drained"), record(1, "a")], {"drained": 1, "worker_lost": 1}, []),
        ([record(1, "a", "LeaseLapsed"), record(1, "a", "OSError")], {"lease_lapsed": 1, "failed": 1}, []),
        ([record(1, "a")], {"worker_lost": 1}, [SECOND]),
        ([record(1, "b"), record(2, "a"), record(2, "b")], {}, [FIRST, SECOND]),
        ([], {}, [FIRST, SECOND]),
    ],
)
def test_a_record_explains_one_call_of_its_attempt_and_worker(
    records: list[Record], by_reason: dict[str, int], unexplained: list[Call]
) -> None:
    """Not two calls, nor another worker's; the last call needs none."""
    assert explain([FIRST, SECOND, THIRD], records) == (Counter(by_reason), unexplained)


async def test_what_breaks_no_promise_is_only_counted() -> None:
    """A job that was run once, one that was run again, one that failed for good."""
    account = await account_of(
        life([FIRST], []),
        life([FIRST, THIRD], [record(1, "a")], order_id=8),
        life([FIRST], [record(1, "a", "Permanent")], order_id=9, kind="reject", outcome="permanent failure"),
    )

    assert (account.jobs, account.duplicates, account.by_reason) == (3, 1, Counter(worker_lost=1))
    assert [account.lost, account.ghosts, account.unexplained, account.late, account.condemned] == [[], [], [], [], []]


@pytest.mark.parametrize(
    ("lives", "offence", "found"),
    [
        ([life([], [], job_id=None, outcome="")], "lost", [7]),
        ([life([FIRST], [], outcome="unfinished")], "lost", [7]),
        ([life([], [])], "lost", [70]),
        ([life([FIRST], [], order_id=None)], "ghosts", [70]),
        ([life([FIRST], []), life([FIRST], [], job_id=71)], "ghosts", [71]),
        ([life([FIRST, THIRD], [])], "unexplained", [70]),
        ([life([FIRST, THIRD], [record(1, "a")], worker_id="a", attempt=1)], "late", [70]),
        ([life([FIRST, SECOND], [record(1, "a")], kind="transfer", fences=[1])], "late", [70]),
        ([life([FIRST, SECOND], [record(1, "a")], kind="transfer", fences=[1, 2])], "late", [70]),
        ([life([FIRST], [], kind="transfer")], "late", [70]),
        ([life([FIRST], [record(1, "a")], outcome="killed its worker")], "condemned", [70]),
    ],
)
async def test_each_offence_has_its_offender(lives: list[Life], offence: str, found: list[int]) -> None:
    """And no other offence is found."""
    account = await account_of(*lives)

    offences = ("lost", "ghosts", "unexplained", "late", "condemned")
    assert {name: getattr(account, name) for name in offences if getattr(account, name)} == {offence: found}


KILLED, FROZEN = Fault(PIDS["a"], 100.0, is_final=True), Fault(PIDS["a"], 100.0, is_final=False)
BEFORE, AGAIN = call(1, 1, "a", 99.9), call(2, 2, "b", 104.5)


@pytest.mark.parametrize(
    ("calls", "records", "faults", "outages", "expected"),
    [
        pytest.param([BEFORE, AGAIN], [record(1, "a", at=104)], [KILLED], [], [4.5], id="killed"),
        pytest.param([AGAIN], [record(1, "a", at=104)], [KILLED], [], [4.5], id="killed before the call"),
        pytest.param(
            [BEFORE, call(2, 3, "c", 109.0)],
            [record(1, "a", at=104), record(2, "b", at=108)],
            [KILLED, Fault(PIDS["b"], 105.0, is_final=True)],
            [],
            [4.0, 5.0],
            id="killed twice, the second one before its call",
        ),
        pytest.param(
            [call(1, 1, "a", 109.0), AGAIN], [record(1, "a", at=104)], [FROZEN], [], [], id="called after the thaw"
        ),
        pytest.param([BEFORE, AGAIN], [record(1, "a", at=104)], [FROZEN], [], [4.5], id="frozen"),
        pytest.param(
            [BEFORE, AGAIN], [record(1, "a", at=104)], [KILLED], [Outage(101.0, 103.0)], [1.5], id="away meanwhile"
        ),
        pytest.param(
            [BEFORE, AGAIN], [record(1, "a", "LeaseLapsed", at=103.5)], [], [Outage(100.0, 103.0)], [1.5], id="lapsed"
        ),
        pytest.param([BEFORE, AGAIN], [record(1, "a", "OSError", at=100)], [KILLED], [], [], id="failed"),
        pytest.param([BEFORE, AGAIN], [record(1, "a", at=104)], [], [], [], id="a late beat"),
        pytest.param(
            [call(1, 1, "a", 120.0), call(2, 2, "b", 124.0)], [record(1, "a", at=123)], [FROZEN], [], [], id="later"
        ),
    ],
)
def test_a_recovery_runs_from_the_fault_to_the_next_call(
    calls: list[Call], records: list[Record], faults: list[Fault], outages: list[Outage], expected: list[float]
) -> None:
    """While the database is away it does not, and what no fault caused has none."""
    every_worker = life([call(1, 1, worker) for worker in PIDS], [])

    found = recoveries([life(calls, records), every_worker], faults, outages)

    assert sorted(one.seconds for one in found) == expected


def test_a_dead_letter_ends_a_recovery_too() -> None:
    """A job that is condemned is not called again."""
    dead = life([BEFORE], [record(1, "a", at=104)], outcome="killed its worker", ended_at=105.0)

    what = f"{dead.kind} {dead.job_id} after WorkerLost at attempt 1"
    assert recoveries([dead], [KILLED], []) == [Recovery(5.0, what)]


def test_a_seed_plans_the_same_faults_again() -> None:
    """For every tenth kill a freeze and a stop, as many stops as there can be during restarts, and work after all."""
    planned = plan(100_000, 100, 2, random.Random(5))

    assert planned == plan(100_000, 100, 2, random.Random(5)) == sorted(planned)
    assert planned != plan(100_000, 100, 2, random.Random(6))
    assert Counter(one.what for one in planned) == {
        What.KILL: 100,
        What.FREEZE: 10,
        What.STOP: 8,
        What.RESTART_AND_STOP: 2,
    }
    assert max(one.after for one in planned) < 100_000 * LATEST
