"""Runs the `main` of an example: on the database of JOBQ_DSN, or with `--embedded` on the one in `./.jobq`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress

from jobq import Queue
from jobq.embedded import start


def try_out(queue: Queue, main: Callable[[], Awaitable[None]]) -> None:
    """Run *main* with *queue* connected, and close its pool at the end. Ctrl-C ends it."""

    async def run() -> None:
        async with queue:
            await main()

    with suppress(KeyboardInterrupt), start() if "--embedded" in sys.argv[1:] else nullcontext() as server:
        if server is not None:
            queue.use_dsn(server.dsn)
        asyncio.run(run())
