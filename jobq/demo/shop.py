"""The demo's application, `jobq run jobq.demo.shop:queue`: an order and its receipt are committed together."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from email.message import EmailMessage
from typing import TYPE_CHECKING

import aiosmtplib
import msgspec

from jobq import Backoff, Job, Permanent, Queue

if TYPE_CHECKING:
    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy

ORDERS = "create table orders (id bigserial primary key, customer text not null, cents int not null)"
SMTP_PORT = "JOBQ_DEMO_SMTP_PORT"

queue = Queue()


class MailServer(msgspec.Struct, frozen=True):
    """Where receipts are sent to."""

    port: int


@queue.lifespan
async def find_mail_server() -> AsyncIterator[MailServer]:
    """Give all handlers of a worker the mail server."""
    yield MailServer(int(os.environ[SMTP_PORT]))


@queue.task(
    kind="send_receipt",
    queue="mail",
    timeout=30,
    backoff=Backoff(base_s=0.2, cap_s=2.0),
    on_duplicate="harmless: both mails have the same Message-Id, by which mail programs know a duplicate",
)
async def send_receipt(job: Job, order_id: int) -> None:
    """Send the receipt of one order."""
    pool = await queue.pool()
    order = await pool.fetchrow("select customer, cents from orders where id = $1", order_id)
    if order is None:
        raise Permanent(f"order {order_id} does not exist")

    mail = EmailMessage()
    mail["From"] = "shop@example.com"
    mail["To"] = order["customer"]
    mail["Subject"] = f"Receipt for order {order_id}"
    mail["Message-Id"] = f"<receipt-{job.id}@shop.example.com>"
    # For the account at the end, which has to explain each duplicate.
    mail["X-Order"], mail["X-Attempt"], mail["X-Process"] = str(order_id), str(job.attempt), str(os.getpid())
    mail.set_content(f"Thank you. You paid {order['cents'] / 100:.2f}.")

    port = job.resource(MailServer).port
    try:
        await aiosmtplib.send(mail, hostname="127.0.0.1", port=port, local_hostname="localhost")
    except aiosmtplib.SMTPRecipientsRefused as error:
        refusal = error.recipients[0]
        raise Permanent(f"{order['customer']}: {refusal.code} {refusal.message}") from error


class PaymentRefusedError(Exception):
    """The customer cannot pay."""


async def place_order(conn: PoolConnectionProxy[Record], customer: str, cents: int, *, can_pay: bool) -> None:
    """Store an order together with the job that sends its receipt: both are committed, or neither is."""
    async with conn.transaction():
        order_id = await conn.fetchval(
            "insert into orders (customer, cents) values ($1, $2) returning id", customer, cents
        )
        await queue.enqueue(send_receipt.bind(order_id=order_id), conn=conn, idempotency_key=f"receipt:{order_id}")
        if not can_pay:
            raise PaymentRefusedError
