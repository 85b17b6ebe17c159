"""`jobq dead list` and `jobq dead show`: what they tell of dead letters, to people and to programs."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING

import pytest

from jobq.core.outcomes import DRAINED
from jobq.db.store import Owned
from tests.cli.conftest import Call, Run, Start, died_ago
from tests.db.rows import error_json

if TYPE_CHECKING:
    from tests.db.rows import Rows

HOSTILE = error_json("no \x1b[31msuch [bold]order[/bold]\nsecond line" + "x" * 300, type="shop.errors.NoOrderError")


# -- looking -----------------------------------------------------------------------------------------------


async def test_the_list_is_newest_first_and_whole_in_a_pipe(rows: Rows, call: Call) -> None:
    """A line each, without colour, with nothing that an error could do to a terminal; and how many there are."""
    old = await died_ago(rows, 5)
    new = await died_ago(rows, 1, HOSTILE, kind="resize_image_for_the_gallery", queue="images-and-videos")
    await died_ago(rows, 60)

    ended = await call("dead", "list", "--limit", 2)

    assert ended.code == 0
    header, first, second, total = ended.out.splitlines()
    assert header.split() == ["ID", "AGE", "KIND", "QUEUE", "FINGERPRINT", "ERROR"]
    assert first.split()[:5] == [str(new), "1", "h", "resize_image_for_the_gallery", "images-and-videos"]
    assert first.endswith(r"NoOrderError: no \x1b[31msuch [bold]order[/bold]")
    assert second.split()[:3] == [str(old), "5", "h"]
    assert total == "3 dead letters, the newest 2 shown: --limit shows more"


async def test_the_list_fits_a_terminal_of_80_columns(
    rows: Rows, schema: str, start: Start, terminal: tuple[int, int]
) -> None:
    """Names are cut before ids, ages and fingerprints are."""
    job_id = await died_ago(rows, 1, HOSTILE, kind="resize_image_for_the_gallery", queue="images-and-videos")
    person, command = terminal

    running = await start("dead", "list", "--schema", schema, stdout=command, COLUMNS="80", NO_COLOR="1", TERM="dumb")
    await running.ends()
    lines = os.read(person, 65536).decode().splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[1].split()[:5] == [str(job_id), "1", "h", "resize_image_fo…", "images-…"]
    assert "0123456789ab  NoOrderError: no" in lines[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--kind", "resize"], {"resized"}),
        (["--queue", "images"], {"resized"}),
        (["--fingerprint", "ffffffffffff"], {"young"}),
        (["--older-than", "24h"], {"old"}),
        (["--younger-than", "90m"], {"young"}),
        (["--older-than", "90m", "--kind", "resize"], {"resized"}),
        (["--kind", "nothing"], set()),
    ],
)
async def test_filters_are_joined(options: list[str], expected: set[str], rows: Rows, call: Call) -> None:
    """All that is stated must match; `--json` has the total and the letters."""
    ids = {
        await died_ago(rows, 48): "old",
        await died_ago(rows, 1, error_json(fingerprint="f" * 12)): "young",
        await died_ago(rows, 2, kind="resize", queue="images"): "resized",
    }

    ended = await call("dead", "list", "--json", *options)

    listed = json.loads(ended.out)
    assert listed["total"] == len(expected)
    assert {ids[letter["id"]] for letter in listed["dead_letters"]} == expected


async def test_a_page_tells_all_and_the_command_that_redrives(rows: Rows, call: Call, run: Run) -> None:
    """Whoever is woken by it needs no second place to look, and can paste the line."""
    job_id = await died_ago(rows, 3, HOSTILE, "attempts used up", idempotency_key="receipt:7", max_attempts=1)

    ended = await call("dead", "show", job_id)

    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == f"send_receipt {job_id}: dead letter of queue mail, attempts used up"
    facts = dict(line.strip().split("  ", 1) for line in lines[2 : lines.index("payload") - 1])
    assert facts["attempts"].strip() == "1 of 1 (0 crashed), redriven 0 times before"
    assert facts["died"].strip().endswith("+00:00 (3 h ago)")
    assert facts["key"].strip() == "receipt:7"
    assert facts["fingerprint"].strip() == "0123456789ab"
    assert {"first failed", "enqueued", "last due", "last claimed", "last worker", "priority"} <= facts.keys()
    assert 'payload\n  {\n    "order_id": 7\n  }\n' in ended.out
    assert "error, attempt 1\n  Traceback of no \\x1b[31msuch [bold]order[/bold]\n  second line" in ended.out
    assert "how attempts ended, oldest first\n  attempt 1  " in ended.out
    [command] = [line for line in lines if "redrive it" in line]
    redriven = await run(*shlex.split(command.partition("jobq ")[2]))
    assert (redriven.code, redriven.out) == (0, "1 redriven\n")


async def test_a_page_tells_each_different_error_once(rows: Rows, call: Call) -> None:
    """The last one is often the consequence of the first."""
    attempt = await rows.running()
    first, other = error_json("first", fingerprint="a" * 12), error_json("other", fingerprint="b" * 12)
    for error in [first, other, other]:
        proof = [Owned(attempt.id, attempt.fence)]
        await rows.store.settle_retry(rows.conn, attempt.worker_id, proof, [0.0], [error])
        attempt = await rows.reclaimed(attempt.id)
    proof = [Owned(attempt.id, attempt.fence)]
    await rows.store.settle_dead(rows.conn, attempt.worker_id, proof, [True], ["attempts used up"], [other])

    ended = await call("dead", "show", attempt.id)

    assert ended.out.count("Traceback of other") == 1
    assert ended.out.count("Traceback of first") == 1
    assert ended.out.index("error, attempt 4") < ended.out.index("an earlier, different error, attempt 1")
    assert ended.out.count("TimeoutError: other") == 3


async def test_a_release_on_record_is_not_taken_for_an_error(rows: Rows, call: Call) -> None:
    """It stands in its place among the attempts; what the letter died of is the failure, in lists and on the page."""
    attempt = await rows.running()
    drained = error_json(DRAINED.message, type=DRAINED.type, fingerprint=DRAINED.fingerprint)
    await rows.store.settle_released(rows.conn, attempt.worker_id, [attempt], [0.0], [drained])
    attempt = await rows.reclaimed(attempt.id)
    proof = [Owned(attempt.id, attempt.fence)]
    await rows.store.settle_dead(rows.conn, attempt.worker_id, proof, [True], ["attempts used up"], [error_json("no")])

    ended = await call("dead", "show", attempt.id)
    listed = await call("dead", "list")

    assert "  attempts      1 (0 crashed), redriven 0 times before\n" in ended.out
    assert "an earlier, different error" not in ended.out
    *_, first, second = ended.out.partition("how attempts ended, oldest first\n")[2].partition("\n\n")[0].splitlines()
    assert first.startswith("  attempt 1  ")
    assert first.endswith(f" Drained: {DRAINED.message}")
    assert second.startswith("  attempt 1  ")
    assert second.endswith(" TimeoutError: no")
    assert "TimeoutError: no" in listed.out
    assert "Drained" not in listed.out


async def test_a_letter_is_json_for_programs(rows: Rows, call: Call) -> None:
    """What is stored as JSON is not wrapped in a string, and times can be parsed."""
    job_id = await died_ago(rows, 3)

    letter = json.loads((await call("dead", "show", job_id, "--json")).out)

    assert letter["id"] == job_id
    assert letter["payload"] == {"order_id": 7}
    assert letter["errors"][0]["message"] == "no answer"
    assert letter["died_at"].endswith("Z")
    assert letter.keys() == {
        *("id", "kind", "queue", "reason", "error_type", "error_message", "fingerprint", "attempt", "crashes"),
        *("redrives", "first_failed_at", "died_at", "priority", "max_attempts", "fence", "enqueued_at", "run_at"),
        *("claimed_at", "idempotency_key", "payload", "errors", "headers"),
    }


async def test_a_letter_that_is_not_there_is_said_in_one_line(rows: Rows, call: Call) -> None:
    """It was redriven, deleted, or never died."""
    ended = await call("dead", "show", 4711)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "jobq: there is no dead letter 4711: it was redriven or deleted, or it is still being tried\n"


async def test_a_schema_that_is_not_there_is_wrong_configuration(dsn: str, call: Call) -> None:
    """With the command that installs it."""
    ended = await call("dead", "list")

    assert ended.code == 78
    assert "run `jobq migrate --schema" in ended.err
