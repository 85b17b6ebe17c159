"""A log line as JSON: whoever wrote the record, whatever it holds."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextvars import copy_context
from typing import Any

import pytest

from jobq import Job, Queue
from jobq.core.states import State
from jobq.telemetry.context import job_of_context
from jobq.telemetry.events import JobRetried
from jobq.telemetry.json_lines import JsonLines
from jobq.telemetry.log import log_event
from tests.worker.conftest import Working
from tests.worker.observe import Jobs


def line(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a program reads of a record: one line, one object."""
    text = JsonLines().format(record)
    assert "\n" not in text
    read: dict[str, Any] = json.loads(text)
    return read


def record(message: str = "hello", **extra: object) -> logging.LogRecord:
    """Make a record as the application does."""
    return logging.getLogger("shop").makeRecord("shop", logging.WARNING, "x.py", 1, message, (), None, extra=extra)


def test_an_event_is_its_name_and_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    """Ids as fields of the line, beside the sentence for a person."""
    caplog.set_level(logging.DEBUG)
    log_event(JobRetried(7, "send", 2, "OSError", "gone", 1.5, "", "mail"))

    read = line(caplog.records[0])

    assert list(read)[:4] == ["time", "level", "logger", "message"]
    assert read.pop("time").endswith("Z")
    assert read == {
        "level": "warning",
        "logger": "jobq",
        "message": "send 7 failed at attempt 2, next in 1.5 s: OSError: gone",
        "event": "JobRetried",
        "id": 7,
        "kind": "send",
        "attempt": 2,
        "error_type": "OSError",
        "error_message": "gone",
        "delay_s": 1.5,
        "note": "",
        "queue": "mail",
    }


def test_a_record_of_the_application_keeps_what_it_says() -> None:
    """`extra=` and the traceback; what the line itself states cannot be overwritten."""
    try:
        raise ValueError("a\nb")
    except ValueError:
        made = record("two\nlines", order_id=7, level="mine")
        made.exc_info = sys.exc_info()

    read = line(made)

    assert (read["message"], read["order_id"], read["level"]) == ("two\nlines", 7, "warning")
    assert read["exception"].endswith("ValueError: a\nb")


@pytest.mark.parametrize(
    "odd",
    ["\ud800", 2**70, {1: "a"}, {"a": object()}, float("nan"), b"\xff", {("a", 1): 2}],
    ids=["surrogate", "large", "number as key", "object", "not a number", "bytes", "tuple as key"],
)
def test_anything_can_be_logged(odd: object) -> None:
    """A line that cannot be written is one that is missing."""
    assert "odd" in line(record(odd=odd))


def test_what_contains_itself_can_be_logged() -> None:
    """As its text."""
    odd: list[object] = []
    odd.append(odd)

    assert line(record(odd=odd))["odd"] == "[[...]]"


async def test_what_a_handler_logs_bears_the_ids_of_its_job(
    queue: Queue, jobs: Jobs, working: Working, caplog: pytest.LogCaptureFixture
) -> None:
    """In its own task, in one that it starts, and in a thread; after it, nothing does."""
    shown: list[dict[str, Any]] = []

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(line(record))

    logger = logging.getLogger("shop")
    logger.addHandler(handler := Shown())

    @queue.task("work", queue="mail")
    async def work(job: Job) -> None:
        logger.warning("here")
        await asyncio.create_task(beside())
        await asyncio.to_thread(logger.warning, "in a thread")

    async def beside() -> None:
        logger.warning("beside")

    @queue.task("compute", queue="mail")
    def compute() -> None:
        logger.warning("computed")

    try:
        async with working() as running:
            first = await queue.enqueue(work.bind())
            await jobs.become(first.id, State.DONE)
            second = await queue.enqueue(compute.bind())
            await jobs.become(second.id, State.DONE)
        logger.warning("outside")
    finally:
        logger.removeHandler(handler)

    ids = [[one.get(name) for name in ("message", "id", "kind", "queue", "attempt", "worker_id")] for one in shown]
    worker_id = str(running.worker.worker_id)
    assert ids == [
        *([message, first.id, "work", "mail", 1, worker_id] for message in ("here", "beside", "in a thread")),
        ["computed", second.id, "compute", "mail", 1, worker_id],
        ["outside", None, None, None, None, None],
    ]
    assert copy_context().get(job_of_context) is None
