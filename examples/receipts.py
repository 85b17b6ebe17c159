"""Orders and receipts: a receipt is sent for each order that was committed, and for no other.

A mail cannot take part in a transaction. Sent before the commit, it may tell of an order that is rolled back; sent
after it, it is lost if the process dies in between. So the transaction that stores the order also stores a job, which
says that the receipt is to be sent. A worker sends it, as often as it takes.

    jobq migrate --embedded
    python -m examples.receipts --orders 1000 --refused 100 --embedded
    jobq run examples.receipts:queue --embedded --until-empty

`--embedded` is a PostgreSQL of its own in `./.jobq`: leave it out and set JOBQ_DSN to use yours. The worker sends over
SMTP to SMTP_HOST and SMTP_PORT; without these it starts a mail server that appends what it gets to `receipts.mbox`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import nullcontext
from email.message import EmailMessage
from typing import TYPE_CHECKING

import aiosmtplib

from examples.mail_server import MailServer, run_mail_server
from jobq import Job, Permanent, Queue
from jobq.embedded import start

if TYPE_CHECKING:
    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy

ORDERS = "create table if not exists orders (id bigserial primary key, customer text not null, cents int not null)"

queue = Queue()  # connects when it is first used, to JOBQ_DSN


# -- the job: what happens later, in a worker ----------------------------------------------------------


@queue.lifespan
async def open_mail_server() -> AsyncIterator[MailServer]:
    """Open what handlers share, once in each worker, and close it after the last job."""
    if host := os.environ.get("SMTP_HOST"):
        yield MailServer(host, int(os.environ.get("SMTP_PORT", "25")))
    else:
        async with run_mail_server(os.environ.get("RECEIPTS_MBOX", "receipts.mbox")) as server:
            yield server


@queue.task(
    kind="send_receipt",  # the name in the database: the function may be renamed or moved, its jobs still find it
    queue="mail",
    max_attempts=8,  # whatever it raises, it is tried again, later and later; then it is a dead letter
    timeout=30,  # seconds for each attempt
    on_duplicate="harmless: both mails have the same Message-Id, by which mail programs know a duplicate",
)
async def send_receipt(job: Job, order_id: int) -> None:
    """Send the receipt of one order. The payload says which one; what it contains is read now."""
    pool = await queue.pool()
    order = await pool.fetchrow("select customer, cents from orders where id = $1", order_id)
    if order is None:
        raise Permanent(f"order {order_id} was deleted meanwhile")  # a dead letter at once: no retry can help

    mail = EmailMessage()
    mail["From"] = "shop@example.com"
    mail["To"] = order["customer"]
    mail["Subject"] = f"Receipt for order {order_id}"
    mail["Message-Id"] = f"<receipt-{job.id}@shop.example.com>"  # the same in every attempt of this job
    mail.set_content(f"Thank you. You paid {order['cents'] / 100:.2f}.")

    server = job.resource(MailServer)
    await aiosmtplib.send(mail, hostname=server.host, port=server.port, local_hostname="localhost")


# -- the business: what happens now, in your application -------------------------------------------------


class PaymentRefusedError(Exception):
    """The customer cannot pay."""


async def place_order(conn: PoolConnectionProxy[Record], customer: str, cents: int, *, can_pay: bool) -> None:
    """Store an order together with the job that sends its receipt: both are committed, or neither is."""
    async with conn.transaction():
        order_id = await conn.fetchval(
            "insert into orders (customer, cents) values ($1, $2) returning id", customer, cents
        )
        await queue.enqueue(send_receipt.bind(order_id=order_id), conn=conn)
        if not can_pay:
            raise PaymentRefusedError  # rolls back the order, and with it the job


async def place_orders(orders: int, refused: int) -> int:
    """Place *orders* orders, and between them try *refused* more. Returns how many were rolled back."""
    rolled_back = 0
    async with queue:  # closes its pool at the end
        pool = await queue.pool()
        async with pool.acquire() as conn:
            await conn.execute(ORDERS)
            total = orders + refused
            for number in range(total):
                can_pay = number * refused // total == (number + 1) * refused // total
                try:
                    await place_order(conn, f"customer-{number}@example.com", cents=100 + number, can_pay=can_pay)
                except PaymentRefusedError:
                    rolled_back += 1
    return rolled_back


def main() -> None:
    """Place the orders that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m examples.receipts", description="Place orders.")
    parser.add_argument("--orders", type=int, default=1000, help="how many to commit")
    parser.add_argument("--refused", type=int, default=100, help="how many more to try and roll back")
    parser.add_argument("--embedded", action="store_true", help="on the PostgreSQL in ./.jobq, not that of JOBQ_DSN")
    given = parser.parse_args()
    with start() if given.embedded else nullcontext() as server:
        if server is not None:
            queue.use_dsn(server.dsn)
        rolled_back = asyncio.run(place_orders(given.orders, given.refused))
    print(f"{given.orders:,} orders committed, {rolled_back:,} rolled back")


if __name__ == "__main__":
    main()
