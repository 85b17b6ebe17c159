"""What the adapters in Python have in common: their three commands, their clock, and the count of what ran.

An adapter runs in the environment of its own system, so this needs nothing but the standard library. The commands are

- `setup`      install the system in the empty database of `RIVALS_DSN`
- `enqueue N`  enqueue N jobs and print `{"enqueue_s": ...}`
- `work N`     be one worker process: print `{"first_at": ..., "all_at": ...}` when the handler was called N times,
               go on until SIGTERM, then print `{"calls": ..., "distinct": ...}`

`tally.cjs` is the same for Node.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

NOTE = "x" * 70
"""Makes a payload of about 100 bytes."""

Run = Callable[[Coroutine[Any, Any, None]], None]


class Tally:
    """What the handler was called for. A job is known by its number, which its payload carries."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._calls = 0
        self._first_at = 0.0
        self._seen = bytearray(jobs)

    def mark(self, number: int) -> None:
        """Note a call of the handler: all that a handler does."""
        if not self._calls:
            self._first_at = time.time()
        self._calls += 1
        self._seen[number] = 1
        if self._calls == self._jobs:
            say(first_at=self._first_at, all_at=time.time())

    def tell(self) -> None:
        """Print how often the handler was called, and for how many jobs."""
        say(calls=self._calls, distinct=sum(self._seen))


def payload(number: int) -> dict[str, Any]:
    """Return the payload of a job."""
    return {"order_id": number, "note": NOTE}


def chunks(numbers: range, size: int) -> Iterator[range]:
    """Yield *numbers* in order, *size* at a time."""
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


@contextmanager
def enqueue_clock() -> Iterator[None]:
    """Time the block, in which all jobs are made and enqueued."""
    started = time.perf_counter()
    yield
    say(enqueue_s=time.perf_counter() - started)


def say(**values: float) -> None:
    """Tell the benchmark."""
    print(json.dumps(values), flush=True)


def until_sigterm(
    work: Callable[[str, Tally, asyncio.Event], Coroutine[Any, Any, None]], *, run: Run = asyncio.run
) -> Callable[[str, Tally], None]:
    """Make a worker of a coroutine function that runs jobs until its event is set; *run* runs an event loop."""

    async def listen(dsn: str, tally: Tally) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await work(dsn, tally, stop)

    return lambda dsn, tally: run(listen(dsn, tally))


def main(
    *,
    setup: Callable[[str], Coroutine[Any, Any, None]],
    enqueue: Callable[[str, range], Coroutine[Any, Any, None]],
    work: Callable[[str, Tally], None],
    run: Run = asyncio.run,
) -> None:
    """Run the command of the command line. *work* is a worker that ends at SIGTERM; *run* runs an event loop."""
    dsn = os.environ["RIVALS_DSN"]
    match sys.argv[1:]:
        case ["setup"]:
            run(setup(dsn))
        case ["enqueue", jobs]:
            run(enqueue(dsn, range(int(jobs))))
        case ["work", jobs]:
            tally = Tally(int(jobs))
            work(dsn, tally)
            tally.tell()
        case other:
            sys.exit(f"setup, enqueue N or work N, not {other}")
