"""Runs a `def` handler in a thread of its executor, so that it cannot block the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from jobq.core.outcomes import Raised, Returned
from jobq.worker.attempt import Attempt


async def call_in_thread(threads: ThreadPoolExecutor, attempt: Attempt, parameters: dict[str, object]) -> object:
    """Call the handler of *attempt* in one of *threads*, in a copy of this context. Returns or raises what it does."""
    context = copy_context()
    ended: list[Returned | Raised] = []

    def run() -> None:
        attempt.thread_id = threading.get_ident()
        # No exception crosses: StopIteration cannot be set on a future, and SystemExit would end the loop. Nor is it
        # returned: the frame of the pool, which the traceback refers to, would keep it.
        try:
            ended.append(Returned(context.run(attempt.handler.call, attempt.job, parameters)))
        except BaseException as error:
            ended.append(Raised(error))

    await asyncio.get_running_loop().run_in_executor(threads, run)
    match ended.pop():
        case Raised(error):
            try:
                raise error
            finally:
                del error  # Its traceback refers to this frame: without this it would live until the next collection.
        case Returned(answer):
            return answer
