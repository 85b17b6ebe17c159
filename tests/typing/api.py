"""How type checkers see the public API. Checked by mypy and basedpyright, never run.

An ignored line is one that must be refused: an ignore that is not needed is an error itself.
"""

from __future__ import annotations

from typing import assert_type

from asyncpg import Connection, Record

from jobq import BacklogAlert, DeadAlert, Enqueued, Job, NewJob, Queue, Snooze
from jobq.telemetry.tracing import Tracing

queue = Queue()


@queue.task("send_receipt", on_duplicate="harmless")
async def send_receipt(job: Job, order_id: int, note: str = "") -> None: ...


@queue.task("resize_image")
def resize_image(path: str) -> int:
    return len(path)


@queue.task("poll_upstream")
async def poll_upstream() -> Snooze | None: ...


@queue.on_dead
async def tell_dead(alert: DeadAlert) -> None: ...


@queue.on_dead(kinds=["send_receipt"], quiet=3600)
async def tell_some(alert: DeadAlert) -> None: ...


@queue.on_backlog(age=60)
async def tell_backlog(alert: BacklogAlert) -> None: ...


async def a_hook_stays_a_function(dead: DeadAlert, backlog: BacklogAlert) -> None:
    await tell_dead(dead)
    await tell_some(dead)
    await tell_backlog(backlog)
    queue.on_dead(tell_backlog)  # type: ignore[type-var]  # pyright: ignore[reportCallIssue, reportArgumentType]
    queue.on_backlog(age=60)(tell_dead)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    queue.on_backlog()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def bind_keeps_the_payload_parameters() -> None:
    assert_type(send_receipt.bind(order_id=1), NewJob)
    assert_type(send_receipt.bind(1, note="hello"), NewJob)
    assert_type(resize_image.bind("cat.png"), NewJob)
    assert_type(poll_upstream.bind(), NewJob)
    send_receipt.bind(order_id="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send_receipt.bind()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    resize_image.bind(path="cat.png", size=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def calling_a_handler_calls_the_function(job: Job) -> None:
    await send_receipt(job=job, order_id=7)
    await send_receipt(job, 7)
    assert_type(resize_image("cat.png"), int)
    assert_type(await poll_upstream(), Snooze | None)
    await send_receipt(order_id=7)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def enqueue_answers_with_id_and_created(conn: Connection[Record]) -> None:
    assert_type(await queue.enqueue(send_receipt.bind(order_id=1), conn=conn, idempotency_key="receipt:1"), Enqueued)
    assert_type(await queue.enqueue("send_receipt", {"order_id": 1}, queue="mail"), Enqueued)
    assert_type(await queue.enqueue_many([resize_image.bind("a"), resize_image.bind("b")], conn=conn), list[Enqueued])
    await queue.enqueue(send_receipt)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def a_resource_has_the_type_that_was_asked_for(job: Job) -> None:
    assert_type(job.resource(dict), dict)  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument]
    async with job.transaction() as conn:
        await conn.execute("select 1")


def a_queue_may_be_traced() -> None:
    assert_type(Queue(tracing=Tracing()).tracing, Tracing | None)
    Queue(tracing=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@queue.recurring("0 9 * * mon-fri", tz="Europe/Berlin", overlap="skip")
@queue.task("daily_report")
async def daily_report(job: Job, region: str = "eu") -> None: ...


async def a_recurring_handler_stays_what_it_was() -> None:
    assert_type(daily_report.bind(region="us"), NewJob)
    queue.recurring("@daily", name="second", payload={"region": "us"})(daily_report)
    queue.recurring("@daily", overlap="kill")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await queue.recurring.add("third", "@daily", daily_report.bind(), catch_up="all", catch_up_cap=3)
    await queue.recurring.add("fourth", "@daily", daily_report)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
