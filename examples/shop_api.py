"""FastAPI: a request stores its order and enqueues the job in one transaction, so one that fails leaves neither.

    jobq migrate --embedded
    python -m examples.shop_api --embedded
    curl --json '{"article": "tea", "count": 2}' http://127.0.0.1:8000/orders
    jobq run examples.shop_api:queue --embedded

The worker is a process of its own, and may be started, stopped and scaled apart from the web application.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from examples.try_out import try_out
from jobq import Queue

SCHEMA = """
create table if not exists stock (article text primary key, in_stock int not null check (in_stock >= 0));
create table if not exists orders (id bigserial primary key, article text, count int, state text default 'placed');
insert into stock values ('tea', 10), ('cups', 3) on conflict do nothing;
"""

queue = Queue()


@queue.task(
    kind="confirm_order",
    queue="orders",
    timeout=30,  # seconds
    on_duplicate="harmless: only an order that is still placed becomes confirmed",
)
async def confirm_order(order_id: int) -> None:
    """Confirm one order, unless it was cancelled meanwhile."""
    pool = await queue.pool()
    await pool.execute("update orders set state = 'confirmed' where id = $1 and state = 'placed'", order_id)


class NewOrder(BaseModel):
    """What a customer wants."""

    article: str
    count: int = Field(ge=1, le=1000)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the application's own pool: jobq uses the connection that it is given."""
    async with asyncpg.create_pool(queue.dsn) as app.state.pool:
        await app.state.pool.execute(SCHEMA)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place_order(new: NewOrder, request: Request) -> dict[str, int]:
    """Place an order. The answer is sent after the commit.

    The transaction stands here, and not in a dependency with `yield`: FastAPI would commit that one after the answer.
    """
    async with request.app.state.pool.acquire() as conn, conn.transaction():
        order_id: int = await conn.fetchval(
            "insert into orders (article, count) values ($1, $2) returning id", new.article, new.count
        )
        await queue.enqueue(confirm_order.bind(order_id=order_id), conn=conn)
        taken = await conn.execute(
            "update stock set in_stock = in_stock - $2 where article = $1 and in_stock >= $2", new.article, new.count
        )
        if taken == "UPDATE 0":
            raise HTTPException(409, f"not enough {new.article}")  # rolls back the order, and with it the job
    return {"order_id": order_id}


@app.get("/orders/{order_id}")
async def show_order(order_id: int, request: Request) -> dict[str, str]:
    """Say how far an order is."""
    state = await request.app.state.pool.fetchval("select state from orders where id = $1", order_id)
    if state is None:
        raise HTTPException(404, f"no order {order_id}")
    return {"state": state}


async def main() -> None:
    """Serve the application, on PORT or 8000."""
    await uvicorn.Server(uvicorn.Config(app, port=int(os.environ.get("PORT", "8000")))).serve()


if __name__ == "__main__":
    try_out(queue, main)
