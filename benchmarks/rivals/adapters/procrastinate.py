# /// script
# dependencies = ["procrastinate==3.10.0", "psycopg[binary]==3.3.9", "uvloop==0.23.0"]
#
# [tool.rivals]
# unfinished = "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))"
# ///
"""Procrastinate: https://procrastinate.readthedocs.io/en/stable/howto/production/concurrency.html.

- concurrency 50 with a pool of as many connections: the worker fetches and finishes each job by itself. It drained
  2,000 jobs at 740/s, with 20 at 580/s, with 100 at 630/s
- batches of 1,000 to defer, the way that its documentation names for many jobs
- finished jobs are kept, its default; deleting them was no faster
"""

from __future__ import annotations

import asyncio
import logging

import uvloop
from procrastinate import App, PsycopgConnector

from benchmarks.rivals.adapter import Tally, chunks, enqueue_clock, main, payload, until_sigterm

CONCURRENCY = 50
CHUNK = 1_000


def _app(dsn: str) -> App:
    # It warns that the module of its tasks is the main one, as it is here on purpose.
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    return App(connector=PsycopgConnector(conninfo=dsn, max_size=CONCURRENCY))


async def setup(dsn: str) -> None:
    """Apply the schema."""
    async with _app(dsn).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def enqueue(dsn: str, numbers: range) -> None:
    """Defer batches."""
    async with _app(dsn).open_async() as app:
        deferrer = app.configure_task("noop")
        with enqueue_clock():
            for some in chunks(numbers, CHUNK):
                await deferrer.batch_defer_async(*map(payload, some))


async def work(dsn: str, tally: Tally, stop: asyncio.Event) -> None:
    """Run a worker."""

    async def noop(order_id: int, note: str) -> None:
        tally.mark(order_id)

    async with _app(dsn).open_async() as app:
        app.task(name="noop")(noop)
        async with asyncio.TaskGroup() as running:
            worker = running.create_task(app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False))
            await stop.wait()
            worker.cancel()


if __name__ == "__main__":
    main(setup=setup, enqueue=enqueue, work=until_sigterm(work, run=uvloop.run), run=uvloop.run)
