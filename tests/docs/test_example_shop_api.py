"""The web application of examples/shop_api.py: an order and its job are there together, or not at all."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import AsyncIterator, MutableMapping
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from examples import shop_api
from jobq.core.states import State
from tests.docs.conftest import PROCESSES, Told, Work, discard, line_with
from tests.worker.observe import Jobs, eventually

if TYPE_CHECKING:
    from tests.conftest import Conn

COUNTS = "select (select count(*) from orders), (select count(*) from jobq.job), (select max(in_stock) from stock)"


class Answers:
    """The application, and what stood in the database when each answer began."""

    def __init__(self, db: Conn) -> None:
        self._db = db
        self.when_answered: list[tuple[int, ...]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""

        async def look(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.when_answered.append(tuple(await self._db.fetchrow(COUNTS) or ()))
            await send(message)

        await shop_api.app(scope, receive, look)


@pytest.fixture
def answers(db: Conn) -> Answers:
    """The application."""
    return Answers(db)


@pytest.fixture
async def client(database: str, answers: Answers) -> AsyncIterator[httpx.AsyncClient]:
    """A customer's client."""
    shop_api.queue.use_dsn(database)
    async with (
        shop_api.app.router.lifespan_context(shop_api.app),
        httpx.AsyncClient(transport=httpx.ASGITransport(answers), base_url="http://shop") as client,
    ):
        yield client


async def test_an_order_is_there_with_its_job_when_the_answer_begins(
    client: httpx.AsyncClient, answers: Answers, jobs: Jobs, work: Work
) -> None:
    """What the customer is told is committed, and a worker confirms it."""
    placed = await client.post("/orders", json={"article": "tea", "count": 2})
    before = await client.get(f"/orders/{placed.json()['order_id']}")
    await work(shop_api.queue)
    after = await client.get(f"/orders/{placed.json()['order_id']}")

    assert placed.status_code == 202
    assert answers.when_answered[0] == (1, 1, 8)
    assert (before.json(), after.json()) == ({"state": "placed"}, {"state": "confirmed"})
    assert await jobs.count() == {State.DONE: 1}


async def test_a_request_that_fails_leaves_neither_order_nor_job(
    client: httpx.AsyncClient, answers: Answers, jobs: Jobs, work: Work
) -> None:
    """It fails after it has enqueued: the job is rolled back with the order."""
    refused = await client.post("/orders", json={"article": "cups", "count": 4})

    assert (refused.status_code, refused.json()) == (409, {"detail": "not enough cups"})
    assert answers.when_answered == [(0, 0, 10)]
    assert await jobs.run("select last_value from orders_id_seq where is_called") == 1  # it was stored, for a moment


async def test_an_order_that_was_cancelled_is_not_confirmed(client: httpx.AsyncClient, db: Conn, work: Work) -> None:
    """The handler looks at the order as it is then."""
    await client.post("/orders", json={"article": "tea", "count": 2})
    await db.execute("update orders set state = 'cancelled'")

    await work(shop_api.queue)

    assert (await client.get("/orders/1")).json() == {"state": "cancelled"}


@PROCESSES
async def test_its_head_tells_how_to_run_it(told: Told) -> None:
    """The served application takes the order, and a worker process confirms it."""
    migrate, serve, curl, run = told.commands("shop_api")
    _, _, order, url = shlex.split(curl)
    await told.run(migrate)
    server, worker = await told.start(serve, PORT="0"), await told.start(run)
    try:
        where = (await line_with("Uvicorn running on ", server)).split("running on ")[1].split()[0]
        await line_with(" started: queues ", worker)
        async with httpx.AsyncClient(base_url=where) as client:
            placed = await client.post(httpx.URL(url).path, json=json.loads(order))
            shown = await eventually(
                lambda: client.get(f"/orders/{placed.json()['order_id']}"),
                lambda answer: answer.json() == {"state": "confirmed"},
            )
        worker.send_signal(signal.SIGTERM)
        assert await worker.wait() == 0
    finally:
        await discard(worker)
        await discard(server)

    assert (placed.status_code, shown.status_code) == (202, 200)
