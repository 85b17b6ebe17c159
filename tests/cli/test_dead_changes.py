"""`jobq dead redrive` and `jobq dead delete`: they do what was asked for, and never more by accident."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from jobq.core.states import State
from tests.cli.conftest import Call, Start, died_ago

if TYPE_CHECKING:
    from tests.db.rows import Rows


# -- never by accident ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["redrive"], ["delete", "--yes"]])
@pytest.mark.parametrize("which", [[], ["--all", "--kind", "send_receipt"], ["--older-than", "7"]])
async def test_what_is_meant_has_to_be_said(command: list[str], which: list[str], rows: Rows, call: Call) -> None:
    """F113: nothing stated is not everything, everything and a filter contradict each other, and 7 is no age."""
    await died_ago(rows, 1)
    before = await rows.contents()

    ended = await call("dead", *command, *which)

    assert ended.code == 2
    assert await rows.contents() == before


@pytest.mark.parametrize("command", ["redrive", "delete"])
async def test_a_dry_run_shows_and_changes_nothing(command: str, rows: Rows, call: Call) -> None:
    """How many it would be, and the first of them."""
    for _ in range(12):
        await died_ago(rows, 1)
    before = await rows.contents()

    for_people = await call("dead", command, "--kind", "send_receipt", "--dry-run")
    for_programs = await call("dead", command, "--all", "--dry-run", "--json")

    assert (for_people.code, for_programs.code) == (0, 0)
    lines = for_people.out.splitlines()
    assert len(lines) == 1 + 10 + 1
    assert lines[-1].startswith("12 dead letters match, the newest 10 of them shown; without --dry-run they would be ")
    assert json.loads(for_programs.out)["total"] == 12
    assert await rows.contents() == before


async def test_a_bulk_delete_needs_a_yes(rows: Rows, call: Call) -> None:
    """A script cannot be asked, so it has to say --yes."""
    kept = await died_ago(rows, 1, kind="resize")
    gone = await died_ago(rows, 1)

    asked = await call("dead", "delete", "--kind", "send_receipt")
    assert asked.code == 2
    assert "add --yes" in asked.err
    assert await rows.state_of(gone) is State.DEAD

    confirmed = await call("dead", "delete", "--kind", "send_receipt", "--yes")
    assert (confirmed.code, confirmed.out) == (0, "1 deleted\n")
    assert await rows.state_of(gone) is State.ABSENT
    assert await rows.state_of(kept) is State.DEAD


@pytest.mark.parametrize(("answer", "code", "becomes"), [("y", 0, State.ABSENT), ("n", 1, State.DEAD)])
async def test_a_bulk_delete_asks_at_a_terminal(
    answer: str, code: int, becomes: State, rows: Rows, schema: str, start: Start, terminal: tuple[int, int]
) -> None:
    """It shows first what it would delete."""
    job_id = await died_ago(rows, 1)
    person, command = terminal

    running = await start("dead", "delete", "--older-than", "30m", "--schema", schema, stdin=command)
    await running.says("1 dead letter matches. Delete for good? [y/N]:")
    os.write(person, f"{answer}\n".encode())
    ended = await running.ends()

    assert ended.code == code
    assert str(job_id) in ended.out
    assert await rows.state_of(job_id) is becomes


# -- what they do --------------------------------------------------------------------------------------------


async def test_redrive_by_id_leaves_the_others(rows: Rows, call: Call) -> None:
    """The one that is named waits again, with all its attempts."""
    other, asked = await died_ago(rows, 1), await died_ago(rows, 1)

    ended = await call("dead", "redrive", asked)

    assert (ended.code, ended.out) == (0, "1 redriven\n")
    assert (await rows.job(asked))["attempt"] == 0
    assert await rows.state_of(other) is State.DEAD


@pytest.mark.parametrize(("command", "done"), [("redrive", "redriven"), ("delete", "deleted")])
async def test_an_id_that_is_not_there_is_named(command: str, done: str, rows: Rows, call: Call) -> None:
    """The others are done, and the exit code says that something was not."""
    asked = await died_ago(rows, 1)

    for_people = await call("dead", command, asked, 4711)
    for_programs = await call("dead", command, 4711, "--json")

    assert (for_people.code, for_people.out) == (1, f"1 {done}\n")
    assert for_people.err == "4711 is no dead letter, or does not match the filters\n"
    assert for_programs.code == 1
    assert json.loads(for_programs.out).items() >= {done: 0, "missing": [4711]}.items()


async def test_all_is_all(rows: Rows, call: Call) -> None:
    """When it is said in so many words."""
    redriven = [await died_ago(rows, 1), await died_ago(rows, 100, kind="resize")]

    ended = await call("dead", "redrive", "--all")

    assert (ended.code, ended.out) == (0, "2 redriven\n")
    assert [await rows.state_of(one) for one in redriven] == [State.WAITING] * 2


async def test_a_key_that_a_newer_job_holds_is_reported(rows: Rows, call: Call) -> None:
    """The dead letter stays, and whoever asked learns why."""
    job_id = await died_ago(rows, 1, idempotency_key="receipt:7")
    await rows.run("update @schema@.idempotency_key set until = now() - interval '1 hour'")
    newer = await rows.waiting(idempotency_key="receipt:7")

    for_people = await call("dead", "redrive", job_id)
    for_programs = await call("dead", "redrive", "--all", "--json")

    assert (for_people.code, for_people.out) == (1, "0 redriven\n")
    assert for_people.err == f"{job_id} stays dead: job {newer} holds its idempotency key\n"
    assert for_programs.code == 1
    assert json.loads(for_programs.out)["held"] == [{"id": job_id, "held_by": newer}]
    assert await rows.state_of(job_id) is State.DEAD
