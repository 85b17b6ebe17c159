"""How the process ends: as Python does if it can, by force if something of the user's holds it.

A task that swallows its cancellation, or a thread that is blocked, would keep a drained worker alive for ever.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

FAILED = 1

END_LIMIT_S = 3.0
"""How long what is left may take once all jobs are settled; within the five seconds that a unit file allows for it."""

logger = logging.getLogger("jobq")


def end_now(code: int) -> NoReturn:
    """End the process at once, without waiting for threads and without `atexit`, but with its log written."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


@contextmanager
def bounded_end(code: int) -> Iterator[None]:
    """Let the body take `END_LIMIT_S` seconds, then end the process with *code*."""
    timer = _timer(code)
    try:
        yield
    finally:
        timer.cancel()


def end(code: int) -> NoReturn:
    """End the process with *code*: normally, or by force if that takes longer than `END_LIMIT_S` seconds."""
    _timer(code)
    sys.exit(code)


def _timer(code: int) -> threading.Timer:
    timer = threading.Timer(END_LIMIT_S, _give_up, [code])
    timer.daemon = True
    timer.start()
    return timer


def _give_up(code: int) -> None:
    threads = [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    held = f"threads {', '.join(threads)}" if threads else "a task that ignores its cancellation"
    logger.warning("the process does not end by itself within %g s, held by %s: ending it", END_LIMIT_S, held)
    end_now(code)
