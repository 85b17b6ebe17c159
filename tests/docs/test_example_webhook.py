"""The webhook of examples/webhook.py, against a server that is busy, broken, fine or gone."""

from __future__ import annotations

import signal
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import httpx
import pytest

from examples import webhook
from examples.webhook_receiver import BUSY_THEN_BROKEN_THEN_FINE, Answer, run_receiver
from jobq import Permanent, RetryAfter
from jobq.core.states import State
from tests.docs.conftest import PROCESSES, Told, Work, discard, line_with
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
HOUR_S = 3600.0


async def enqueue(database: str, db: Conn, url: str) -> int:
    """Store a delivery to *url* and its job. Returns the job's id."""
    webhook.queue.use_dsn(database)
    await db.execute(webhook.SCHEMA)
    delivery_id = await db.fetchval("insert into delivery (url, body) values ($1, '{\"order\": 7}') returning id", url)
    async with webhook.queue:
        return (await webhook.queue.enqueue(webhook.deliver.bind(delivery_id=delivery_id))).id


@PROCESSES
async def test_its_head_tells_how_to_see_it(told: Told) -> None:
    """A receiver, a worker and a delivery, which arrives at the third attempt."""
    receive, run, send = told.commands("webhook")
    receiver = await told.start(receive, PORT="0")
    try:
        url = (await line_with("listening on ", receiver)).split()[-1]
        worker = await told.start(run)
        try:
            await told.run(send.replace("http://127.0.0.1:8090/", url))
            answered = [await line_with(": ", receiver) for _ in BUSY_THEN_BROKEN_THEN_FINE]
            worker.send_signal(signal.SIGTERM)
            assert await worker.wait() == 0
        finally:
            await discard(worker)
    finally:
        await discard(receiver)

    assert answered == ["shop-1: 429 Too Many Requests\n", "shop-1: 500 Internal Server Error\n", "shop-1: 200 OK\n"]


@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
async def test_a_busy_receiver_says_when(database: str, db: Conn, jobs: Jobs, work: Work, as_date: bool) -> None:
    """After a 429 that asks for an hour the job waits an hour; then come a 500 and a 200, all for the same key."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=HOUR_S), usegmt=True)
    asking = Answer(HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": date if as_date else f"{HOUR_S:.0f}"})
    with run_receiver([asking, *BUSY_THEN_BROKEN_THEN_FINE[1:]]) as receiver:
        job_id = await enqueue(database, db, receiver.url)

        await work(webhook.queue)
        waiting = await jobs.get(job_id)
        while (await jobs.get(job_id)).state is State.WAITING:
            await jobs.run("update @schema@.job set run_at = clock_timestamp()")
            await work(webhook.queue)

    # Within the time-out of the test: no slower machine makes it fail.
    assert HOUR_S - 60 < waiting.due_in_s <= HOUR_S
    assert await jobs.count() == {State.DONE: 1}
    assert [one.headers["Idempotency-Key"] for one in receiver.received] == [f"shop-{job_id}"] * 3
    assert {one.body for one in receiver.received} == {b'{"order": 7}'}


async def test_a_receiver_that_is_gone_makes_a_dead_letter(database: str, db: Conn, jobs: Jobs, work: Work) -> None:
    """410 is for good: it is asked once."""
    with run_receiver([Answer(HTTPStatus.GONE, {})]) as receiver:
        await enqueue(database, db, receiver.url)
        await work(webhook.queue)

    assert await jobs.count() == {State.DEAD: 1}
    assert len(receiver.received) == 1


async def test_a_receiver_that_does_not_answer_is_tried_again(database: str, db: Conn, jobs: Jobs, work: Work) -> None:
    """No connection is no answer."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        job_id = await enqueue(database, db, f"http://127.0.0.1:{deaf.getsockname()[1]}/")

        await work(webhook.queue)

    now = await jobs.get(job_id)
    assert (now.state, now.errors[-1]["type"]) == (State.WAITING, "httpx.ConnectError")


async def test_a_delivery_that_was_withdrawn_is_not_sent(database: str, db: Conn, jobs: Jobs, work: Work) -> None:
    """The payload is a reference: what it refers to is looked up when it is sent."""
    with run_receiver([Answer(HTTPStatus.OK, {})]) as receiver:
        await enqueue(database, db, receiver.url)
        await db.execute("delete from delivery")
        await work(webhook.queue)

    assert await jobs.count() == {State.DONE: 1}
    assert receiver.received == []


@pytest.mark.parametrize(
    ("status", "retry_after", "raised"),
    [
        (200, None, None),
        (204, None, None),
        (301, None, httpx.HTTPStatusError),
        (400, None, Permanent),
        (404, "5", Permanent),
        (408, None, httpx.HTTPStatusError),
        (422, None, Permanent),
        (425, None, httpx.HTTPStatusError),
        (429, None, httpx.HTTPStatusError),
        (429, "soon", httpx.HTTPStatusError),
        (429, "5", RetryAfter),
        (500, "5", httpx.HTTPStatusError),
        (503, None, httpx.HTTPStatusError),
        (503, "5", RetryAfter),
    ],
)
def test_an_answer_says_what_becomes_of_the_delivery(
    status: int, retry_after: str | None, raised: type[Exception] | None
) -> None:
    """Taken, later at a stated time, later with the backoff, or never."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    answer = httpx.Response(status, headers=headers, request=httpx.Request("POST", "http://shop.example.com/"))

    if raised is None:
        webhook.judge(answer, now=NOW)
    else:
        with pytest.raises(raised) as error:
            webhook.judge(answer, now=NOW)
        assert getattr(error.value, "delay", None) == (5.0 if raised is RetryAfter else None)


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("Wed, 01 Jul 2026 12:02:00 GMT", 120.0),
        ("Wednesday, 01-Jul-26 12:02:00 GMT", 120.0),
        ("Wed Jul  1 12:02:00 2026", 120.0),
        ("Wed, 01 Jul 2026 11:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("nan", None),
        ("Wed, 99 Jul 2026 12:02:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(retry_after: str, seconds: float | None) -> None:
    """Each of HTTP's three forms of a date is read; what is neither is no answer."""
    assert webhook.seconds_until(retry_after, now=NOW) == seconds
