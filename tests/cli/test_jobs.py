"""`jobq jobs`: the list of what waits, runs and is done, page by page, and one job wherever it is."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jobq.core.job import JobId
from jobq.core.states import State
from jobq.core.worker import WorkerRow
from tests.cli.conftest import Call, Run, Start
from tests.db.rows import KIND, LEASE_S, Rows, error_json, new_worker, settle

if TYPE_CHECKING:
    from jobq.core.job import WorkerId

LONG = "resize_image_for_the_gallery_of_the_shop"


async def known_worker(rows: Rows) -> WorkerId:
    """Let a worker be alive, whose host and process are known."""
    worker = WorkerRow(new_worker(), 4242, "web-1", "0", ["mail"], [KIND])
    await rows.store.beat(rows.conn, worker, LEASE_S)
    return worker.worker_id


async def one_in_each_state(rows: Rows) -> dict[str, JobId]:
    """Make a job in every state that is listed, and a dead letter, which is not."""
    await rows.dead()
    return {
        "ready": await rows.waiting(),
        "done": (await rows.in_state(State.DONE)).id,
        "running": (await rows.running(await known_worker(rows))).id,
        "scheduled": await rows.scheduled(priority=2),
    }


# -- the list ----------------------------------------------------------------------------------------------


async def test_the_list_is_newest_first_in_all_states(rows: Rows, call: Call) -> None:
    """A line each, whole in a pipe."""
    ids = await one_in_each_state(rows)

    ended = await call("jobs")

    header, *lines = [line.split() for line in ended.out.splitlines()]
    assert header == ["ID", "KIND", "QUEUE", "STATE", "P", "ATTEMPT", "WHEN", "AGE", "WORKER"]
    assert [line[:6] for line in lines] == [
        [str(ids["scheduled"]), "send_receipt", "mail", "scheduled", "2", "0"],
        [str(ids["running"]), "send_receipt", "mail", "running", "5", "1"],
        [str(ids["done"]), "send_receipt", "mail", "done", "5", "1"],
        [str(ids["ready"]), "send_receipt", "mail", "ready", "5", "0"],
    ]
    assert lines[0][6:9] == ["in", "59", "min"]
    assert lines[1][-1] == "web-1:4242"
    assert len(lines[2][-1]) == 8, "a worker that is not known any more is named by its id"
    assert ended.err == ""


async def test_the_list_tells_since_when_a_job_runs(rows: Rows, call: Call, sql: Callable[[str], str]) -> None:
    """Not since when it was due: whoever looks for what hangs asks for that one."""
    attempt = await rows.running()
    since = "claimed_at = now() - interval '3 minutes', run_at = now() - interval '1 hour'"
    await rows.conn.execute(sql(f"update @schema@.job set {since} where id = $1"), attempt.id)

    listed = (await call("jobs", "--state", "running")).out.splitlines()

    assert listed[1].split()[6:9] == ["3", "min", "ago"]


async def test_programs_get_every_field(rows: Rows, call: Call) -> None:
    """Times can be parsed, and what is not known is null."""
    ids = await one_in_each_state(rows)

    listed = json.loads((await call("jobs", "--json")).out)

    jobs = {job["state"]: job for job in listed["jobs"]}
    assert {state: job["id"] for state, job in jobs.items()} == ids
    assert listed["next_before"] is None
    assert jobs["ready"].keys() == {
        *("id", "kind", "queue", "state", "priority", "attempt", "enqueued_at", "run_at", "claimed_at"),
        *("finished_at", "worker_id", "worker"),
    }
    assert jobs["ready"]["run_at"].endswith("Z")
    assert (jobs["running"]["worker"], jobs["ready"]["worker_id"], jobs["done"]["run_at"]) == ("web-1:4242", None, None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--state", "waiting"], {"ready", "scheduled"}),
        (["--state", "running"], {"running", "running elsewhere"}),
        (["--state", "done"], {"done", "done elsewhere"}),
        (["--queue", "elsewhere"], {"running elsewhere", "done elsewhere"}),
        (["--queue", "mail"], {"ready", "scheduled", "running", "done"}),
        (["--kind", "print"], {"running elsewhere", "done elsewhere"}),
        (["--kind", "print", "--state", "done"], {"done elsewhere"}),
        (["--kind", "print", "--queue", "mail"], set()),
    ],
)
async def test_filters_are_joined(options: list[str], expected: set[str], rows: Rows, call: Call) -> None:
    """All that is stated must match, in each place where jobs are."""
    names = {job_id: name for name, job_id in (await one_in_each_state(rows)).items()}
    names[(await rows.running(queue="elsewhere", kind="print")).id] = "running elsewhere"
    names[(await rows.in_state(State.DONE, queue="elsewhere", kind="print")).id] = "done elsewhere"

    listed = json.loads((await call("jobs", "--json", *options)).out)

    assert {names[job["id"]] for job in listed["jobs"]} == expected


async def test_pages_follow_each_other_without_gap_or_overlap(rows: Rows, call: Call) -> None:
    """F78: over all states together; the last one names no next."""
    ids = []
    for _ in range(3):
        ids += list((await one_in_each_state(rows)).values())
    before: list[object] = []
    seen: list[int] = []

    for _ in range(3):
        page = json.loads((await call("jobs", "--json", "--limit", 5, *before)).out)
        seen += [job["id"] for job in page["jobs"]]
        before = ["--before", page["next_before"]]

    assert seen == sorted(ids, reverse=True)
    assert before == ["--before", None]


async def test_a_person_is_told_how_to_go_on(rows: Rows, call: Call) -> None:
    """Beside the result, which stays clean for a pipe; and that nothing matches is said too."""
    _, middle, newest = await rows.many_waiting(3)

    some = await call("jobs", "--limit", 2)
    none = await call("jobs", "--kind", "nothing")

    assert [line.split()[0] for line in some.out.splitlines()] == ["ID", str(newest), str(middle)]
    assert some.err == f"there are more: add --before {middle} for the next page\n"
    assert (none.code, none.out, none.err) == (0, "", "no job matches\n")


async def test_the_list_fits_a_terminal_of_80_columns(
    rows: Rows, schema: str, start: Start, terminal: tuple[int, int]
) -> None:
    """Names are cut before ids and states are."""
    attempt = await rows.running(await known_worker(rows), kind=LONG, queue=LONG)
    person, command = terminal

    running = await start("jobs", "--schema", schema, stdout=command, COLUMNS="80", NO_COLOR="1", TERM="dumb")
    await running.ends()
    lines = os.read(person, 65536).decode().splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[1].split()[:6] == [str(attempt.id), "resize_image_…", "resize_…", "running", "5", "1"]


# -- one job -----------------------------------------------------------------------------------------------


async def test_a_job_is_shown_wherever_it_is(rows: Rows, call: Call) -> None:
    """The first line says in which state."""
    ids = await one_in_each_state(rows)

    titles = {state: (await call("jobs", job_id)).out.splitlines()[0] for state, job_id in ids.items()}

    assert titles == {
        "ready": f"send_receipt {ids['ready']}: ready for {titles['ready'].split(' for ')[1]}",
        "scheduled": f"send_receipt {ids['scheduled']}: due in 59 min, queue mail",
        "running": f"send_receipt {ids['running']}: running for {titles['running'].split(' for ')[1]}",
        "done": f"send_receipt {ids['done']}: done in 12 ms, queue mail",
    }


async def test_a_page_tells_all_that_is_known(rows: Rows, call: Call) -> None:
    """Attempts, times, worker, payload, and the errors so far."""
    worker_id = await known_worker(rows)
    attempt = await rows.running(worker_id, idempotency_key="receipt:7", max_attempts=8)
    await rows.store.settle_retry(
        rows.conn, worker_id, [attempt], [0.0], [error_json("no \x1b[31manswer\nsecond line")]
    )
    await rows.run("""update @schema@.job set headers = '{"trace": "x"}', redrives = 2""")
    await rows.reclaimed(attempt.id, worker_id)

    ended = await call("jobs", attempt.id)

    lines = ended.out.splitlines()
    facts = dict(line.strip().split("  ", 1) for line in lines[2 : lines.index("payload") - 1])
    assert facts["attempts"].strip() == "2 of 8 (0 crashed), redriven 2 times before"
    assert facts["worker"].strip() == f"web-1:4242 ({worker_id})"
    assert facts["key"].strip() == "receipt:7"
    assert {"enqueued", "due", "first failed", "last claimed", "lease until", "priority"} <= facts.keys()
    assert 'payload\n  {\n    "order_id": 7\n  }\n' in ended.out
    assert 'headers\n  {\n    "trace": "x"\n  }\n' in ended.out
    assert lines[-1].endswith(r"TimeoutError: no \x1b[31manswer")


async def test_a_job_is_json_for_programs(rows: Rows, call: Call) -> None:
    """The same fields in every state; what the history does not keep is null."""
    ids = await one_in_each_state(rows)

    live = json.loads((await call("jobs", ids["running"], "--payload", "--json")).out)
    done = json.loads((await call("jobs", ids["done"], "--payload", "--json")).out)

    assert live.keys() == done.keys()
    assert (live["state"], live["payload"], live["fence"]) == ("running", {"order_id": 7}, 1)
    assert (done["state"], done["run_ms"], done["fence"], done["errors"]) == ("done", 12, None, None)


async def test_a_done_job_says_why_it_ran_more_than_once(rows: Rows, call: Call) -> None:
    """N4: a drain, a lost worker and a failure, each with its attempt; nothing that was no failure is called one."""
    attempt = await rows.running(await known_worker(rows))
    drain = error_json("the worker was stopped", type="Drained")
    await rows.store.settle_released(rows.conn, attempt.worker_id, [attempt], [0.0], [drain])
    attempt = await rows.reclaimed(attempt.id)
    await rows.lapse(attempt)
    await rows.store.reap_orphans(rows.conn, [attempt], pause_s=0.0)
    await settle(rows, "settle_retry", await rows.reclaimed(attempt.id))
    await settle(rows, "settle_done", await rows.reclaimed(attempt.id))

    ended = await call("jobs", attempt.id)
    record = json.loads((await call("jobs", attempt.id, "--json")).out)

    title, *_, heading, drained, lost, failed = ended.out.splitlines()
    assert title.startswith(f"send_receipt {attempt.id}: done in 12 ms")
    assert "  attempts      3 (1 crashed)\n" in ended.out
    assert "first failed" not in ended.out
    assert heading == "how attempts ended, oldest first"
    assert drained.startswith("  attempt 1  ")
    assert drained.endswith(" Drained: the worker was stopped")
    assert lost.startswith("  attempt 1  ")
    assert lost.endswith(" WorkerLost: the worker ended or fell silent during this attempt")
    assert failed.startswith("  attempt 2  ")
    assert failed.endswith(" TimeoutError: no answer")
    assert (record["attempt"], record["crashes"]) == (3, 1)
    assert [(one["type"], one["attempt"]) for one in record["errors"]] == [
        ("Drained", 1),
        ("WorkerLost", 1),
        ("TimeoutError", 2),
    ]


async def test_a_dead_letter_is_shown_by_its_own_command(rows: Rows, call: Call, run: Run) -> None:
    """Which can be pasted."""
    job_id = await rows.dead(reason="attempts used up")

    ended = await call("jobs", job_id)
    record = json.loads((await call("jobs", job_id, "--json")).out)

    title, command = ended.out.splitlines()
    assert title == f"send_receipt {job_id}: dead letter of queue mail, attempts used up"
    shown = await run(*shlex.split(command.partition("jobq ")[2]))
    assert (shown.code, shown.out.splitlines()[0]) == (0, title)
    assert record == {
        "id": job_id,
        "kind": "send_receipt",
        "queue": "mail",
        "state": "dead",
        "command": command.strip(),
    }


async def test_a_job_that_is_nowhere_is_said_in_one_line(rows: Rows, call: Call) -> None:
    """With what may have become of it."""
    ended = await call("jobs", 4711)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "jobq: there is no job 4711: it is not committed yet, it was deleted, or it was done before the history\n"
    )


async def test_an_id_and_a_filter_contradict_each_other(rows: Rows, call: Call) -> None:
    """Neither is dropped without a word."""
    ended = await call("jobs", 4711, "--queue", "mail")

    assert ended.code == 2
    assert "An id says which job it is: leave the filters out." in ended.err
