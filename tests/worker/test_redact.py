"""The values of redacted fields are in the job's row, for its handler, and nowhere else that anybody reads."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import msgspec
import pytest

from jobq import Job, Queue
from jobq.cli.main import run_command
from jobq.core.states import State
from jobq.telemetry.events import FailedAfterCompletion, JobDied, JobRetried
from jobq.telemetry.log import describe as as_line
from jobq.telemetry.log import log_event
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs

CARD = "4111-1111-1111-1234"
TOKEN = "tok_5ecret"


class Buyer(msgspec.Struct):
    """A part of the payload."""

    name: str
    token: str


@pytest.fixture
def charge(queue: Queue) -> Any:
    """A handler that tells all it knows when it fails."""

    @queue.task(kind="charge", max_attempts=2, backoff=AT_ONCE, redact=("card_number", "buyers.token"))
    async def charge(card_number: str, buyers: list[Buyer]) -> None:
        raise TimeoutError(f"no answer for {card_number}, {buyers!r}")

    return charge


async def jobq(dsn: str, schema: str, *words: object) -> tuple[int, str]:
    """Run a command. Returns its exit code, and what it said."""
    said = io.StringIO()

    def run() -> int:
        with redirect_stdout(said), redirect_stderr(said):
            return run_command([*map(str, words), "--dsn", dsn, "--schema", schema])

    return await asyncio.to_thread(run), said.getvalue()


def told(text: str) -> list[str]:
    """Return what *text* tells of the secrets."""
    return [secret for secret in (CARD, TOKEN, "1111", "5ecret") if secret in text]


async def test_a_failing_job_tells_no_redacted_value(
    charge: Any,
    queue: Queue,
    working: Working,
    seen: Events,
    jobs: Jobs,
    dsn: str,
    schema: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F107: not in events, logs, recorded errors, `jobq jobs` and `jobq dead`; its payload is whole for a redrive."""
    caplog.set_level(logging.DEBUG)
    job = await queue.enqueue(charge.bind(card_number=CARD, buyers=[Buyer("Ada", TOKEN)]))
    before = [await jobq(dsn, schema, "jobs", job.id), await jobq(dsn, schema, "jobs", job.id, "--json")]

    async with working():
        retried = await seen(JobRetried)
        died = await seen(JobDied)
    for event in (retried, died):
        log_event(event)
    payload = await jobs.run("select payload from @schema@.dead_letter")
    errors = await jobs.run("select errors::text from @schema@.dead_letter")
    commands = [("dead", "show", job.id), ("dead", "show", job.id, "--json"), ("dead", "list"), ("jobs", job.id)]
    shown = [await jobq(dsn, schema, *words) for words in commands]

    assert json.loads(payload)["card_number"] == CARD
    assert [code for code, _ in before + shown] == [0] * 6
    assert "no answer for ***" in died.error_message
    assert "no answer for ***" in shown[0][1]
    assert '"card_number": "***"' in shown[0][1]
    assert '"name": "Ada"' in shown[0][1]
    assert json.loads(shown[1][1])["payload"] == {"card_number": "***", "buyers": [{"name": "Ada", "token": "***"}]}
    assert told(errors + repr(seen.all) + caplog.text + "".join(text for _, text in before + shown)) == []
    assert told(as_line(retried)[1]) == []


async def test_a_retried_job_says_what_is_redacted(
    charge: Any, queue: Queue, working: Working, seen: Events, dsn: str, schema: str
) -> None:
    """So `jobq jobs` shows the rest of its payload; what never failed is covered, unless somebody insists."""
    again = queue.handlers["charge"]
    again.policy = msgspec.structs.replace(
        again.policy, backoff=msgspec.structs.replace(AT_ONCE, base_s=900, cap_s=900)
    )
    failed = await queue.enqueue(charge.bind(card_number=CARD, buyers=[Buyer("Ada", TOKEN)]))
    async with working():
        await seen(JobRetried)
    fresh = await queue.enqueue("other", {"greeting": "hello"}, queue="default")

    of_failed = await jobq(dsn, schema, "jobs", failed.id)
    of_fresh = await jobq(dsn, schema, "jobs", fresh.id)
    insisted = await jobq(dsn, schema, "jobs", fresh.id, "--payload")

    assert '"name": "Ada"' in of_failed[1]
    assert told(of_failed[1]) == []
    assert "hello" not in of_fresh[1]
    assert "--payload shows it" in of_fresh[1]
    assert '"greeting": "hello"' in insisted[1]


async def test_a_job_that_was_drained_says_what_is_redacted(
    queue: Queue, working: Working, jobs: Jobs, dsn: str, schema: str
) -> None:
    """Though it has not failed: while it waits, and when it is done."""
    started, may_end = asyncio.Event(), asyncio.Event()

    @queue.task(kind="pay", redact=("card_number",))
    async def pay(card_number: str, buyer: str) -> None:
        started.set()
        await may_end.wait()

    job = await queue.enqueue(pay.bind(card_number=CARD, buyer="Ada"))
    async with working(grace_s=0) as running:
        await started.wait()
        await running.stop()
    waiting = await jobq(dsn, schema, "jobs", job.id)
    may_end.set()
    async with working():
        await jobs.become(job.id, State.DONE)
    done = await jobq(dsn, schema, "jobs", job.id)

    assert [text.count('"buyer": "Ada"') for _, text in (waiting, done)] == [1, 1]
    assert [text.count("Drained: ") for _, text in (waiting, done)] == [1, 1]
    assert told(waiting[1] + done[1]) == []


async def test_what_is_raised_after_the_completion_is_covered_too(queue: Queue, working: Working, seen: Events) -> None:
    """Nothing of it is stored, but it is logged."""

    @queue.task(kind="pay", redact=("card_number",))
    async def pay(job: Job, card_number: str) -> None:
        async with job.transaction():
            pass
        raise OSError(card_number)

    await queue.enqueue(pay.bind(card_number=CARD))
    async with working():
        event = await seen(FailedAfterCompletion)

    assert event.error_message == "***"


async def test_a_payload_that_does_not_fit_is_told_without_its_values(
    charge: Any, queue: Queue, working: Working, seen: Events, jobs: Jobs
) -> None:
    """It came from SQL, where nobody checked it."""
    payload = json.dumps({"card_number": [CARD], "buyers": TOKEN})
    await jobs.run("select id from @schema@.enqueue('charge', $1::text::jsonb)", payload)

    async with working():
        died = await seen(JobDied)
    errors = await jobs.run("select errors::text from @schema@.dead_letter")

    assert "does not fit" in died.error_message
    assert told(died.error_message + errors) == []
