"""`jobq enqueue`: what it adds, what it says, and what it refuses before anything is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobq.core.states import State
from tests.cli.conftest import Call, Run, Work
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from asyncpg import Record

    from tests.conftest import Conn

One = Callable[[], Any]


@pytest.fixture
def jobs(conn: Conn, sql: Callable[[str], str]) -> Jobs:
    """The rows of the test's schema."""
    return Jobs(conn, sql)


@pytest.fixture
def only_job(conn: Conn, sql: Callable[[str], str]) -> One:
    """Return the one job that there is."""

    async def only_job() -> Record:
        rows = await conn.fetch(sql("select *, run_at - enqueued_at as delay from @schema@.job"))
        assert len(rows) == 1
        return rows[0]

    return only_job


# -- what is added -----------------------------------------------------------------------------------------


async def test_it_adds_a_job_and_says_its_id(only_job: One, call: Call) -> None:
    """Kind, payload and queue; the rest as the defaults of `Queue.enqueue` have it."""
    ended = await call("enqueue", "send_receipt", '{"order_id": 7, "note": "Grüße"}', "--queue", "mail")

    job = await only_job()
    assert (ended.code, ended.out) == (0, f"{job['id']} enqueued in queue mail\n")
    assert (job["kind"], job["queue"], job["priority"], job["max_attempts"]) == ("send_receipt", "mail", 5, None)
    assert json.loads(job["payload"]) == {"order_id": 7, "note": "Grüße"}
    assert abs(job["delay"]) < timedelta(seconds=1)


async def test_without_a_payload_and_a_queue_there_are_defaults(only_job: One, call: Call) -> None:
    """An empty object, and the queue `default`."""
    ended = await call("enqueue", "close_month", "--json")

    job = await only_job()
    assert json.loads(ended.out) == {"id": job["id"], "created": True}
    assert (job["payload"], job["queue"]) == ("{}", "default")


async def test_a_dash_reads_the_payload_from_stdin(schema: str, only_job: One, tmp_path: Path, run: Run) -> None:
    """For one that is too long for a command line, or made by another program."""
    (tmp_path / "payload.json").write_text('{"text": "Grüße\\n"}\n', encoding="utf-8")
    stdin = os.open(tmp_path / "payload.json", os.O_RDONLY)

    ended = await run("enqueue", "send_receipt", "-", "--schema", schema, stdin=stdin)
    os.close(stdin)

    assert ended.code == 0
    assert json.loads((await only_job())["payload"]) == {"text": "Grüße\n"}


async def test_every_option_reaches_the_row(only_job: One, conn: Conn, sql: Callable[[str], str], call: Call) -> None:
    """As `Queue.enqueue` would have it."""
    options = ("--in", "90m", "--priority", 0, "--max-attempts", 3, "--idempotency-key", "month:2026-03")

    ended = await call("enqueue", "close_month", *options)

    job = await only_job()
    assert ended.code == 0
    assert (job["priority"], job["max_attempts"]) == (0, 3)
    assert abs(job["delay"] - timedelta(minutes=90)) < timedelta(seconds=1)
    keys = await conn.fetch(sql("select kind, key, job_id from @schema@.idempotency_key"))
    assert [tuple(row) for row in keys] == [("close_month", "month:2026-03", job["id"])]


@pytest.mark.parametrize("zone", ["+02:00", "Z"])
async def test_a_time_has_its_zone(zone: str, only_job: One, call: Call) -> None:
    """The instant that is meant, wherever the server stands."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(tzinfo=None, microsecond=0)

    await call("enqueue", "close_month", "--at", f"{tomorrow.isoformat()}{zone}")

    meant = tomorrow.replace(tzinfo=UTC) - timedelta(hours=2 if zone == "+02:00" else 0)
    assert (await only_job())["run_at"] == meant


async def test_an_idempotency_key_adds_once_and_says_so(only_job: One, call: Call) -> None:
    """The second call succeeds too, with the id of the first."""
    first = await call("enqueue", "close_month", "--idempotency-key", "k", "--json")
    second = await call("enqueue", "close_month", "--idempotency-key", "k", "--json")
    third = await call("enqueue", "close_month", "--idempotency-key", "k")

    id_ = (await only_job())["id"]
    assert (first.code, second.code, third.code) == (0, 0, 0)
    assert json.loads(first.out) == {"id": id_, "created": True}
    assert json.loads(second.out) == {"id": id_, "created": False}
    assert third.out == f"{id_} was already enqueued with this idempotency key; nothing is added\n"


async def test_a_job_that_nobody_takes_is_remarked(conn: Conn, call: Call, work: Work) -> None:
    """A misspelt queue is the likeliest reason; on stderr, because the job is enqueued all the same."""
    alone = await call("enqueue", "slow", '{"seconds": 0}')
    worker = await work()
    served = await call("enqueue", "slow", '{"seconds": 0}')
    misspelt = await call("enqueue", "slow", '{"seconds": 0}', "--queue", "defualt")
    await worker.says("slow has run", times=2)

    assert (alone.code, served.code, misspelt.code) == (0, 0, 0)
    assert alone.err == "jobq: no live worker takes slow from queue default: the job waits for one\n"
    assert served.err == ""
    assert misspelt.err == "jobq: no live worker takes slow from queue defualt: the job waits for one\n"


async def test_a_large_payload_is_remarked_in_one_line(only_job: One, call: Call) -> None:
    """Python would print where in jobq the warning was raised."""
    ended = await call("enqueue", "import", json.dumps({"text": "x" * 10_000}))

    assert ended.code == 0
    assert ended.err.startswith("jobq: the payload of import has 10,0")
    assert ".py" not in ended.err
    assert (await only_job())["kind"] == "import"


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ('{"a": 1;}', ["not JSON at line 1, column 8: ", '\n  {"a": 1;}\n         ^\n', "for the shell"]),
        ("{'a': 1}", ["not JSON at line 1, column 2: ", "\n  {'a': 1}\n   ^\n", "double quotes inside"]),
        ("", ["not JSON at line 1, column 1: Expecting value"]),
        ('{\n"a": 1\n"b": 2}', ["not JSON at line 3, column 1: ", '\n  "b": 2}\n  ^\n']),
        ('{"a": 1} {"b": 2}', ["not JSON at line 1, column 10: Extra data"]),
        ('{"' + "x" * 99 + '": 1; }', ["\n  ..." + "x" * 26 + '": 1; }\n']),
        ("[1, 2]", ["'[1, 2]' is no JSON object: write one such as {\"order_id\": 7}"]),
        ('"text"', ["is no JSON object"]),
        ("[" * 100_000, ["nested too deeply"]),
        ('{"a": NaN}', ["$.a = nan is not a finite number"]),
        ('{"a": 9223372036854775808}', ["$.a = 9223372036854775808 "]),
        ('{"a": "\\u0000"}', ["$.a = ", "U+0000"]),
    ],
)
async def test_a_payload_that_cannot_be_stored_is_refused(
    text: str, messages: list[str], jobs: Jobs, call: Call
) -> None:
    """With the place and the remedy, and exit code 2; nothing is written."""
    ended = await call("enqueue", "send_receipt", text)

    assert (ended.code, ended.out) == (2, "")
    assert "Traceback" not in ended.err
    assert [message for message in messages if message not in ended.err] == []
    assert await jobs.count() == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["k", "--at", "2026-04-01T06:00"], "has no time zone: write 2026-04-01T06:00+02:00, or 2026-04-01T06:00Z"),
        (["k", "--at", "tomorrow"], "'tomorrow' is not a time in ISO 8601: write 2026-04-01T06:00+02:00"),
        (["k", "--at", "2126-04-01T06:00Z"], "is more than ten years away"),
        (["k", "--at", "2026-04-01T06:00Z", "--in", "1h"], "choose one of them"),
        (["k", "--in", "90"], "90 of what? Write 90s, 90m, 90h or 90d"),
        (["k", "--priority", "10"], "priority is 10; it is 0 (first) to 9 (last)"),
        (["k", "--max-attempts", "0"], "max_attempts is 0; it counts all starts, so it is 1 or more"),
        (["k", "--queue", "a b"], "queue 'a b' is not a name of ASCII letters"),
        (["k", "--idempotency-key", ""], "idempotency key '' is not a string of 1 to 512 bytes"),
        (["no kind"], "kind 'no kind' is not a name of ASCII letters"),
        ([], "KIND"),
    ],
)
async def test_an_option_that_cannot_be_is_refused(arguments: list[str], message: str, jobs: Jobs, call: Call) -> None:
    """Exit code 2, the value, and what to write instead."""
    ended = await call("enqueue", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert await jobs.count() == {}


async def test_stdin_that_is_no_text_is_refused(schema: str, jobs: Jobs, tmp_path: Path, run: Run) -> None:
    """With the position of the first wrong byte."""
    (tmp_path / "payload.json").write_bytes(b'{"name": "M\xfcller"}')
    stdin = os.open(tmp_path / "payload.json", os.O_RDONLY)

    ended = await run("enqueue", "send_receipt", "-", "--schema", schema, stdin=stdin)
    os.close(stdin)

    assert ended.code == 2
    assert "stdin is not UTF-8 at byte 11" in ended.err
    assert await jobs.count() == {}


async def test_without_a_schema_it_says_which_command_to_run(dsn: str, call: Call) -> None:
    """Producers never run DDL."""
    ended = await call("enqueue", "send_receipt")

    assert ended.code == 78
    assert "run `jobq migrate" in ended.err


async def test_what_is_enqueued_runs(jobs: Jobs, call: Call, work: Work) -> None:
    """From the shell to the handler."""
    await call("enqueue", "quick", "--queue", "mail")

    ended = await (await work("--until-empty")).ends()

    assert ended.out == "quick runs\n"
    assert await jobs.count() == {State.DONE: 1}
