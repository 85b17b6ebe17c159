"""Each statement moves rows as its line in the table of `core/states.py` says, and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from jobq.core.job import JobId
from jobq.core.states import OWNED, TRANSITIONS, Event, State, Transition
from jobq.db.statements import load_statements
from tests.db.entries import NAME, add_entry, entries, fire
from tests.db.rows import DAY_S, KIND, LEASE_S, PROVEN, QUEUE, Attempt, Rows, error_json, new_job, new_worker, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

FILES = {
    entry.name.removesuffix(".sql"): entry.read_text("utf-8")
    for entry in files("jobq.db").joinpath("sql").iterdir()
    if entry.name.endswith(".sql")
}
HEAD = re.compile(r"-- (?P<name>\w+): (?:(?P<source>\w+) -> (?P<target>\w+)|no change of state.*)")
PARAMETER = re.compile(r"-- \$(?P<number>\d+) +(?P<name>\w+) +(?P<type>[a-z0-9]+(?:\[\])?)(?: {2,}\S.*)?")
SERVER_NAMES = {"bigint": "int8", "int": "int4", "boolean": "bool"}

Move = Callable[[Rows, Sequence[Attempt]], Awaitable[object]]


async def enqueue_one(rows: Rows, attempts: Sequence[Attempt]) -> object:
    return await rows.store.enqueue_job(rows.conn, new_job(), answers_for_s=DAY_S, notify=True)


async def enqueue_with_key(rows: Rows, attempts: Sequence[Attempt]) -> object:
    job = new_job(idempotency_key="receipt:7")
    return await rows.store.enqueue_job(rows.conn, job, answers_for_s=DAY_S, notify=True)


async def enqueue_two(rows: Rows, attempts: Sequence[Attempt]) -> object:
    ids = await rows.store.draw_ids(rows.conn, 2)
    await rows.store.insert_jobs(rows.conn, ids, [new_job()] * 2)
    return ids


async def claim_all(rows: Rows, attempts: Sequence[Attempt]) -> object:
    worker_id = attempts[0].worker_id
    return await rows.store.claim_jobs(
        rows.conn, queue=QUEUE, kinds=[KIND], limit=100, worker_id=worker_id, lease_s=LEASE_S
    )


async def redrive_all(rows: Rows, attempts: Sequence[Attempt]) -> object:
    return await rows.store.redrive_jobs(rows.conn, [attempt.id for attempt in attempts])


async def delete_all(rows: Rows, attempts: Sequence[Attempt]) -> object:
    return await rows.store.delete_dead_letters(rows.conn, [attempt.id for attempt in attempts])


async def release_all_strays(rows: Rows, attempts: Sequence[Attempt]) -> object:
    return [await rows.store.release_strays(rows.conn, attempt.worker_id, []) for attempt in attempts]


async def reap_every_worker(rows: Rows, attempts: Sequence[Attempt]) -> object:
    for attempt in attempts:
        await rows.beat(attempt.worker_id, lease_s=-1.0)
    return [await rows.store.reap_worker(rows.conn, one.worker_id, pause_s=0.0, limit=100) for one in attempts]


async def reap_all_orphans(rows: Rows, attempts: Sequence[Attempt]) -> object:
    await rows.lapse(*attempts)
    return await rows.store.reap_orphans(rows.conn, attempts, pause_s=0.0)


async def fire_one(rows: Rows, attempts: Sequence[Attempt]) -> object:
    await add_entry(rows)
    return await fire(rows)


async def run_one(rows: Rows, attempts: Sequence[Attempt]) -> object:
    await add_entry(rows)
    return await entries(rows).run_recurring(rows.conn, NAME)


async def withdraw_all(rows: Rows, attempts: Sequence[Attempt], *, change: Callable[[Rows], Awaitable[object]]) -> None:
    """Let each job in its turn be the one of an entry's last tick, of which only what waits may not have come yet."""
    ids = [attempt.id for attempt in attempts]
    await rows.run(
        "update @schema@.job set fence = 0, run_at = now() + interval '1 min' where id = any($1) and worker_id is null",
        ids,
    )
    for job_id in ids:
        await add_entry(rows)
        await rows.run("update @schema@.recurring set last_job_id = $1", job_id)
        await change(rows)
        await rows.run("delete from @schema@.recurring")


async def settle_each(rows: Rows, attempts: Sequence[Attempt], *, statement: str) -> object:
    return [await settle(rows, statement, attempt) for attempt in attempts]


MOVES: dict[str, Move] = {
    "enqueue_job": enqueue_one,
    "enqueue_keyed": enqueue_with_key,
    "insert_jobs": enqueue_two,
    "claim_jobs": claim_all,
    "fire_recurring": fire_one,
    "run_recurring": run_one,
    "declare_recurring": partial(withdraw_all, change=lambda rows: add_entry(rows, zone="Europe/Berlin")),
    "pause_recurring": partial(
        withdraw_all, change=lambda rows: entries(rows).pause_recurring(rows.conn, NAME, by="ann", why="x")
    ),
    "remove_recurring": partial(withdraw_all, change=lambda rows: entries(rows).remove_recurring(rows.conn, NAME)),
    "redrive_jobs": redrive_all,
    "delete_dead_letters": delete_all,
    "release_strays": release_all_strays,
    "reap_worker": reap_every_worker,
    "reap_orphans": reap_all_orphans,
    **{statement: partial(settle_each, statement=statement) for statement in PROVEN},
}
"""How each statement of the table is run over jobs in all states, with all the proof that there can be."""

STATEMENTS = sorted({(t.statement, t.source, t.target) for t in TRANSITIONS})
OF_THE_REAPER = {"reap_worker", "reap_orphans"}
"""What is written about attempts of others proves a lapsed lease instead (test_leases.py)."""
OF_NO_ATTEMPT = {"release_strays"}
"""What a worker writes about rows of its own that it knows no attempt of (test_leases.py)."""
OWNED_STATEMENTS = sorted({t.statement for t in TRANSITIONS if t.source in OWNED} - OF_THE_REAPER - OF_NO_ATTEMPT)


# -- the table against the server --------------------------------------------------------------------


@pytest.mark.parametrize(("statement", "source", "target"), STATEMENTS, ids=[line[0] for line in STATEMENTS])
async def test_a_statement_moves_from_its_state_only(rows: Rows, statement: str, source: State, target: State) -> None:
    """Of jobs in every state, those in `source` end in `target`, and every row of the others is unchanged."""
    attempts = {state: await rows.in_state(state) for state in State}
    scheduled = await rows.scheduled()
    moving = attempts[source].id
    ids_before = {*await all_ids(rows)}
    before = await rows.contents(moving)

    await MOVES[statement](rows, list(attempts.values()))

    new = {*await all_ids(rows)} - ids_before if source is State.ABSENT else {moving}
    assert new or target is State.ABSENT
    assert {await rows.state_of(job_id) for job_id in new} == {target}
    assert await rows.contents(*new, moving) == before
    assert await rows.state_of(scheduled) is State.WAITING


@pytest.mark.parametrize("statement", OWNED_STATEMENTS)
async def test_a_change_of_an_attempt_needs_the_whole_proof(rows: Rows, statement: str) -> None:
    """F29: a settle whose fence or worker does not match changes nothing and returns nothing."""
    attempt = await rows.running()
    another = await rows.reclaimed((await rows.in_state(State.WAITING)).id, attempt.worker_id)
    flawed = [
        Attempt(attempt.id, attempt.fence + 1, attempt.worker_id),
        Attempt(attempt.id, attempt.fence - 1, attempt.worker_id),
        Attempt(attempt.id, another.fence, attempt.worker_id),
        Attempt(attempt.id, attempt.fence, new_worker()),
    ]
    before = await rows.contents()

    settled = [await settle(rows, statement, proof) for proof in flawed]

    assert settled == [set()] * 4
    assert await rows.contents() == before


@pytest.mark.parametrize("statement", OWNED_STATEMENTS)
@pytest.mark.parametrize("again_by", ["the same worker", "another worker"])
async def test_an_attempt_that_was_released_owns_nothing(rows: Rows, statement: str, again_by: str) -> None:
    """After release and a new claim, by whomever, what the first attempt writes changes nothing."""
    first = await rows.running()
    await settle(rows, "settle_released", first)
    await rows.reclaimed(first.id, first.worker_id if again_by == "the same worker" else None)
    before = await rows.contents()

    settled = await settle(rows, statement, first)

    assert settled == set()
    assert await rows.contents() == before


@pytest.mark.parametrize("statement", OWNED_STATEMENTS)
async def test_a_batch_settles_those_that_match(rows: Rows, statement: str) -> None:
    """Fences go by position: in one batch, in any order of ids, the lost are left and the others settled."""
    worker_id = new_worker()
    first, lost, last = [await rows.running(worker_id) for _ in range(3)]
    await settle(rows, "settle_released", first)
    first = await rows.reclaimed(first.id, worker_id)
    await settle(rows, "settle_released", lost)
    await rows.reclaimed(lost.id, worker_id)
    before = await rows.contents(first.id, last.id)

    settled = await settle(rows, statement, last, lost, first)

    assert settled == {first.id, last.id}
    assert await rows.contents(first.id, last.id) == before


async def test_the_fence_only_grows(rows: Rows) -> None:
    """Each claim raises it, also across retry, release, reap, dead letter and redrive."""
    job_id = await rows.waiting()
    fences = []
    endings = ("settle_retry", "settle_released", "settle_dead", "reap_worker", "reap_orphans", "release_strays")
    for ending in (*endings, "settle_retry"):
        attempt = await rows.reclaimed(job_id)
        fences.append(attempt.fence)
        await MOVES[ending](rows, [attempt])
        if ending == "settle_dead":
            await rows.store.redrive_jobs(rows.conn, [job_id])

    fences.append((await rows.reclaimed(job_id)).fence)

    assert fences == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("delay_s", [0.0, 2.0, 3600.0])
@pytest.mark.parametrize("statement", ["settle_retry", "settle_released"])
async def test_a_delay_moves_run_at(rows: Rows, statement: str, delay_s: float) -> None:
    """The next start is due that many seconds after the settle, by the database's clock (F42)."""
    attempt = await rows.running()
    earliest = await rows.value("select clock_timestamp() + $1::float8 * interval '1 second'", delay_s)

    if statement == "settle_retry":
        await rows.store.settle_retry(rows.conn, attempt.worker_id, [attempt], [delay_s], ['{"type": "ValueError"}'])
    else:
        await rows.store.settle_released(rows.conn, attempt.worker_id, [attempt], [delay_s], [None])

    latest = await rows.value("select clock_timestamp() + $1::float8 * interval '1 second'", delay_s)
    job = await rows.job(attempt.id)
    assert earliest <= job["run_at"] <= latest
    assert (job["worker_id"], job["lease_until"]) == (None, None)


async def test_a_release_gives_the_attempt_back(rows: Rows) -> None:
    """Ten releases, then a claim: it is attempt 1, and nothing was recorded as a failure (F42)."""
    job_id = await rows.waiting()
    for _ in range(10):
        await settle(rows, "settle_released", await rows.reclaimed(job_id))

    await rows.reclaimed(job_id)

    job = await rows.job(job_id)
    assert (job["attempt"], job["fence"], job["errors"], job["first_failed_at"]) == (1, 11, None, None)


async def test_a_release_of_what_had_started_is_on_record(rows: Rows) -> None:
    """By position: with attempt, worker and time; the attempt is given back, and nothing has failed."""
    worker_id = new_worker()
    drained, ahead = [await rows.running(worker_id) for _ in range(2)]
    began = await rows.value("select clock_timestamp()")
    drain = error_json("stopped", type="Drained")

    await rows.store.settle_released(rows.conn, worker_id, [ahead, drained], [0.0, 0.0], [None, drain])

    job = await rows.job(drained.id)
    (record,) = json.loads(job["errors"])
    assert (record["type"], record["attempt"], record["worker_id"]) == ("Drained", 1, str(worker_id))
    assert began <= datetime.fromisoformat(record["at"]) <= job["run_at"] + timedelta(seconds=1)
    assert (job["attempt"], job["first_failed_at"]) == (0, None)
    assert (await rows.job(ahead.id))["errors"] is None


async def test_releases_of_one_type_push_out_one_failure(rows: Rows) -> None:
    """Of a job that has failed often: where there is no room, the oldest release of the same type makes it."""
    job_id = await rows.waiting()

    async def end(*, release: str | None = None, failure: str | None = None) -> list[str]:
        attempt = await rows.reclaimed(job_id)
        proof = (rows.conn, attempt.worker_id, [attempt], [0.0])
        if release is not None:
            await rows.store.settle_released(*proof, [error_json(release, type=release[0])])
        if failure is not None:
            await rows.store.settle_retry(*proof, [error_json(failure)])
        return [error["message"] for error in json.loads((await rows.job(job_id))["errors"])]

    for number in range(1, 21):
        await end(failure=f"failure {number}")
    last_19 = [f"failure {number}" for number in range(2, 21)]

    assert await end(release="D1") == ["failure 1", *last_19, "D1"]
    assert await end(release="D2") == ["failure 1", *last_19, "D2"]
    assert await end(release="L1") == ["failure 1", *last_19[1:], "D2", "L1"]
    assert await end(release="D3") == ["failure 1", *last_19[1:], "L1", "D3"]
    assert await end(release="L2") == ["failure 1", *last_19[1:], "D3", "L2"]
    assert await end(failure="failure 21") == ["failure 1", *last_19[2:], "D3", "L2", "failure 21"]


async def test_a_retry_keeps_the_attempt(rows: Rows) -> None:
    """A failed run counts, and its error is recorded with its attempt, worker and time."""
    attempt = await rows.running()
    started = await rows.value("select clock_timestamp()")

    await settle(rows, "settle_retry", attempt)

    job = await rows.job(attempt.id)
    error = await rows.row(
        "select e ->> 'attempt' as attempt, e ->> 'worker_id' as worker_id, (e ->> 'at')::timestamptz as at,"
        " e ->> 'type' as type from @schema@.job, jsonb_array_elements(errors) e"
    )
    assert (job["attempt"], job["first_failed_at"] >= started) == (1, True)
    assert (error["attempt"], error["worker_id"], error["type"]) == ("1", str(attempt.worker_id), "TimeoutError")
    assert error["at"] >= started


async def test_no_ids_settle_nothing(rows: Rows) -> None:
    """Empty arrays are harmless: no row is meant."""
    await rows.in_state(State.RUNNING)
    await rows.in_state(State.DEAD)
    before = await rows.contents()

    await rows.store.settle_done(rows.conn, new_worker(), [], [])
    await rows.store.redrive_jobs(rows.conn, [])
    await rows.store.delete_dead_letters(rows.conn, [])

    assert await rows.contents() == before


async def all_ids(rows: Rows) -> list[JobId]:
    return [job_id for table in ("job", "done", "dead_letter") for job_id in await rows.ids(table)]


# -- the table against the files ---------------------------------------------------------------------


def test_every_statement_of_the_table_is_run_above() -> None:
    """A new line in the table needs its statement here."""
    assert set(MOVES) == {transition.statement for transition in TRANSITIONS}


def test_the_files_and_the_table_name_the_same_changes() -> None:
    """The head comment of every file is a line of the table, or says that nothing changes its state."""
    heads = {name: HEAD.fullmatch(text.splitlines()[0]) for name, text in FILES.items()}

    changes = {(head["source"], name, head["target"]) for name, head in heads.items() if head and head["source"]}

    assert [name for name, head in heads.items() if head is None or head["name"] != name] == []
    assert changes == {(t.source.value, t.statement, t.target.value) for t in TRANSITIONS}


def test_every_event_is_in_the_table() -> None:
    """An event that moves nothing would be a word without a meaning, a change twice a contradiction."""
    assert {transition.event for transition in TRANSITIONS} == set(Event)
    assert len(set(map(key, TRANSITIONS))) == len(TRANSITIONS)


def key(transition: Transition) -> tuple[State, Event, str]:
    return transition.source, transition.event, transition.statement


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_head_comment_lists_the_parameters(name: str) -> None:
    """Each `$n` of the statement stands in its head comment, in order, with name and type; none stands there alone."""
    documented = [int(line["number"]) for line in parameters(name)]

    body = "\n".join(line for line in FILES[name].splitlines() if not line.lstrip().startswith("--"))

    assert documented == sorted({int(number) for number in re.findall(r"\$(\d+)", body)})


async def test_a_documented_type_is_the_type(conn: Conn, schema: str) -> None:
    """What the head comments say of parameters is what the server infers, so that the driver encodes it as written."""
    documented, inferred = {}, {}

    for name in FILES.keys() - {"create_instance"}:  # which is two statements, and has no parameter
        async with conn.transaction():
            prepared = await conn.prepare(load_statements(schema)[name])
        inferred[name] = [parameter.name for parameter in prepared.get_parameters()]
        documented[name] = [SERVER_NAMES.get(kind, kind) + array for kind, array in map(split_array, parameters(name))]

    assert inferred == documented


def parameters(name: str) -> list[re.Match[str]]:
    """The parameters that the head comment of a file documents."""
    lines = [line for line in FILES[name].splitlines() if line.startswith("-- $")]
    matches = [PARAMETER.fullmatch(line) for line in lines]
    assert None not in matches, f"not `-- $n name  type  remark`: {lines}"
    return [match for match in matches if match]


def split_array(parameter: re.Match[str]) -> tuple[str, str]:
    kind = parameter["type"]
    return kind.removesuffix("[]"), "[]" * kind.endswith("[]")
