"""Webhook: tell another server, which may be busy, broken or gone, and do what its answer asks for.

Busy (429 or 503 with `Retry-After`): come back when it says. Broken (5xx, no connection, no answer): come back later
and later. Wrong for good (the other 4xx): a dead letter at once, which a person can redrive. In three terminals:

    python -m examples.webhook_receiver
    jobq run examples.webhook:queue --embedded
    python -m examples.webhook --embedded http://127.0.0.1:8090/

The receiver answers 429, then 500, then 200.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from examples.try_out import try_out
from jobq import Backoff, Job, Permanent, Queue, RetryAfter

SCHEMA = "create table if not exists delivery (id bigserial primary key, url text not null, body text not null)"
COME_BACK = {408, 425, 429}  # the 4xx that say "not now"; the others say "never"

queue = Queue(queues={"webhooks": 50})  # at once, in each worker


@queue.lifespan
async def open_client() -> AsyncIterator[httpx.AsyncClient]:
    """Open one client for all jobs of a worker: it keeps connections open and bounds their number."""
    async with httpx.AsyncClient(timeout=10) as client:  # seconds for each step; `timeout` below bounds the whole
        yield client


@queue.task(
    kind="deliver_webhook",
    queue="webhooks",
    max_attempts=17,
    backoff=Backoff(base_s=2, cap_s=6 * 3600),  # 17 attempts take about ten hours, on average
    timeout=30,
    on_duplicate="the receiver gets it twice, with the same Idempotency-Key; whether it minds is its own affair",
)
async def deliver(job: Job, delivery_id: int) -> None:
    """Send one delivery to where it is to go now."""
    pool = await queue.pool()
    delivery = await pool.fetchrow("select url, body from delivery where id = $1", delivery_id)
    if delivery is None:
        return  # withdrawn meanwhile: nothing is left to do
    answer = await job.resource(httpx.AsyncClient).post(
        delivery["url"],
        content=delivery["body"],
        headers={"Content-Type": "application/json", "Idempotency-Key": f"shop-{job.id}"},  # the same in each attempt
    )
    judge(answer, now=datetime.now(UTC))


def judge(answer: httpx.Response, *, now: datetime) -> None:
    """Return if the receiver took it; otherwise raise what says whether and when to try again."""
    if answer.status_code in (429, 503):
        delay_s = seconds_until(answer.headers.get("Retry-After", ""), now=now)
        if delay_s is not None:
            raise RetryAfter(delay_s, f"{answer.status_code}, retry after {delay_s:g} s")
    if answer.is_client_error and answer.status_code not in COME_BACK:
        raise Permanent(f"{answer.status_code} from {answer.url.host}: {answer.text[:200]}")
    answer.raise_for_status()  # retried with the backoff


def seconds_until(retry_after: str, *, now: datetime) -> float | None:
    """Read a `Retry-After`, which is seconds or a date (RFC 9110, 10.2.3). None if it is neither."""
    try:
        if retry_after.isdecimal():
            return float(retry_after)
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    # HTTP's dates are in GMT, also those that do not say so.
    return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())


async def main() -> None:
    """Store a delivery to the address at the end of the command line, and the job that sends it."""
    pool = await queue.pool()
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute(SCHEMA)
        delivery_id = await conn.fetchval(
            "insert into delivery (url, body) values ($1, $2) returning id", sys.argv[-1], '{"order": 7, "paid": true}'
        )
        await queue.enqueue(deliver.bind(delivery_id=delivery_id), conn=conn)
    print(f"delivery {delivery_id} stored")


if __name__ == "__main__":
    try_out(queue, main)
