"""`jobq run --log-format json`: each line on stderr is an object, whoever wrote it."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from jobq import Queue
from tests.cli.conftest import Run, Work

CARD = "4111111111111111"


async def lines_of(work: Work, queue: Queue, *options: str) -> list[dict[str, Any]]:
    """Return what a worker logs that runs one job, which logs and warns itself, and one that is done quietly."""
    worker = await work("--log-format", "json", *options)
    told = await queue.enqueue("telling", {"card": CARD}, queue="mail")
    await worker.says("telling has told")
    await queue.enqueue("quick", {}, queue="mail")
    await worker.says("quick runs")
    worker.send(signal.SIGTERM)
    ended = await worker.ends()

    assert ended.code == 0
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert all(list(line)[:4] == ["time", "level", "logger", "message"] for line in lines)
    assert all(line["id"] == told.id for line in lines if line["logger"] == "shop")
    return lines


async def test_each_line_is_an_object(queue: Queue, work: Work) -> None:
    """The worker's events, a handler's own records with the ids of its job, and Python's warnings."""
    lines = await lines_of(work, queue)

    (started,) = (line for line in lines if line.get("event") == "WorkerStarted")
    (told,) = (line for line in lines if line["logger"] == "shop")
    (warned,) = (line for line in lines if line["logger"] == "py.warnings")
    assert {name: told[name] for name in ("level", "message", "order_id", "kind", "queue", "attempt")} == {
        "level": "warning",
        "message": "the receipt was sent",
        "order_id": 7,
        "kind": "telling",
        "queue": "mail",
        "attempt": 1,
    }
    assert told["worker_id"] == started["worker_id"]
    assert "this is odd" in warned["message"]
    assert not [line for line in lines if line.get("event") == "JobDone"]


async def test_at_debug_there_is_one_line_an_attempt(queue: Queue, work: Work) -> None:
    """With its ids and its duration, and no word of the payload."""
    lines = await lines_of(work, queue, "--log-level", "debug")

    done = [line for line in lines if line.get("event") == "JobDone"]
    assert [(line["kind"], line["queue"], line["attempt"]) for line in done] == [
        ("telling", "mail", 1),
        ("quick", "mail", 1),
    ]
    assert all(line["run_ms"] >= 0 for line in done)
    assert CARD not in json.dumps(lines)


@pytest.mark.usefixtures("conn")
async def test_another_format_is_refused(run: Run) -> None:
    """With those that there are."""
    ended = await run("run", "app:queue", "--log-format", "yaml")

    assert ended.code == 2
    assert "'human', 'json'" in ended.err
