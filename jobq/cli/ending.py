"""How the process ends: as Python does if it can, by force if something of the user's holds it.

A task that swallows its cancellation, or a thread that is blocked, would keep a drained worker alive for ever; a
handler that blocks the event loop, or a server that is silent, would keep one from draining.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

FAILED = 1
HANDED_BACK = 3

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


class StopLimit:
    """Ends the process with *code* when a stop that a signal asks for takes too long, also if the loop is blocked.

    The handler of the signal only writes a byte, for which a thread waits. To start a thread there could meet a lock
    that the interrupted code holds. Code that holds the interpreter lock keeps the handler from being called.
    """

    def __init__(self, code: int) -> None:
        self._code = code
        self._pid = os.getpid()
        self._limit_s = self._hurried_s = END_LIMIT_S
        self._signals, self._signal = os.pipe()
        threading.Thread(target=self._watch, name="jobq stop limit", daemon=True).start()

    def allow(self, limit_s: float, *, hurried_s: float) -> None:
        """Let a stop take *limit_s* seconds, and *hurried_s* from a second signal on. Until then `END_LIMIT_S`."""
        self._limit_s, self._hurried_s = limit_s, hurried_s

    def note(self, number: int, frame: FrameType | None) -> None:
        """Be the handler of a signal that asks for a stop."""
        if os.getpid() == self._pid:  # a process that a handler has forked holds the same pipe
            os.write(self._signal, b".")

    def _watch(self) -> None:
        os.read(self._signals, 1)
        ends_at = time.monotonic() + self._limit_s
        is_again, _, _ = select.select([self._signals], [], [], self._limit_s)
        if is_again:
            ends_at = min(ends_at, time.monotonic() + self._hurried_s)
            time.sleep(max(0.0, ends_at - time.monotonic()))
        logger.warning("the stop takes too long: ending the process, what it holds is left to its lease")
        end_now(self._code)


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
