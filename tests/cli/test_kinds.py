"""`jobq kinds app:queue`: the rules of each kind and what a duplicate does, without a database."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Start

APP = '''
from jobq import Queue

queue = Queue()
empty = Queue()


class ProviderDownError(Exception):
    """Nobody answers."""


@queue.task(
    kind="send_receipt", queue="mail", max_attempts=8, max_crashes=2, timeout=30,
    retry_on=(ProviderDownError, TimeoutError),
    on_duplicate="""harmless: the mail provider drops a repeated Message-Id,
        which is the job id""",
)
async def send_receipt(order_id: int) -> None: ...


@queue.task(kind="print_label", timeout=0.5)
def print_label(order_id: int) -> None: ...


async def make():
    return queue
'''

HARMLESS = "harmless: the mail provider drops a repeated Message-Id, which is the job id"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A directory with an application, which is also the working directory of commands."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


async def test_the_rules_are_a_table_and_duplicates_a_list(app: Path, run: Run) -> None:
    """No DSN is needed; a kind that does not say what a duplicate does cannot be overlooked."""
    ended = await run("kinds", "app:queue", JOBQ_DSN=None)

    assert (ended.code, ended.err) == (0, "")
    header, label, receipt, _, title, label_twice, receipt_twice, _, remark = ended.out.splitlines()
    assert header.split() == ["KIND", "QUEUE", "EXECUTOR", "ATTEMPTS", "CRASHES", "TIMEOUT", "RETRY", "ON"]
    assert label.split() == ["print_label", "default", "thread", "10", "3", "0.5", "s", "Exception"]
    assert receipt.split()[:7] == ["send_receipt", "mail", "async", "8", "2", "30", "s"]
    assert receipt.endswith("  ProviderDownError, TimeoutError")
    assert title == "What a duplicate run does"
    assert label_twice.split() == ["print_label", "NOT", "STATED"]
    assert receipt_twice == f"send_receipt  {HARMLESS}"
    assert remark == (
        "1 of 2 kinds do not say what a duplicate run does: add on_duplicate='...' to the @queue.task of print_label"
    )


@pytest.mark.parametrize("target", ["app:queue", "app:make()"])
async def test_programs_get_every_rule(target: str, app: Path, run: Run) -> None:
    """Exceptions with their modules, seconds as numbers, and null where nothing is stated."""
    ended = await run("kinds", target, "--json", JOBQ_DSN=None)

    label, receipt = json.loads(ended.out)["kinds"]
    assert receipt == {
        "kind": "send_receipt",
        "queue": "mail",
        "executor": "async",
        "max_attempts": 8,
        "max_crashes": 2,
        "timeout_s": 30.0,
        "retry_on": ["app.ProviderDownError", "TimeoutError"],
        "on_duplicate": receipt["on_duplicate"],
        "function": "app.send_receipt",
    }
    assert " ".join(receipt["on_duplicate"].split()) == HARMLESS
    assert (label["executor"], label["retry_on"], label["on_duplicate"]) == ("thread", ["Exception"], None)


async def test_the_tables_fit_a_terminal_of_80_columns(app: Path, start: Start, terminal: tuple[int, int]) -> None:
    """Long texts are wrapped, none is cut: what a duplicate does is to be read."""
    person, command = terminal

    running = await start("kinds", "app:queue", stdout=command, COLUMNS="80", NO_COLOR="1", TERM="dumb")
    await running.ends()
    text = os.read(person, 65536).decode()

    tables = text.partition("\r\n1 of 2 kinds")[0].splitlines()
    assert max(map(len, tables)) <= 80
    assert HARMLESS in " ".join(text.split())


async def test_a_queue_without_handlers_is_said_to_have_none(app: Path, run: Run) -> None:
    """Mostly their modules are not imported."""
    ended = await run("kinds", "app:empty")

    assert ended.out == "app:empty has no handlers: import the modules that register them where the queue is made.\n"


async def test_a_wrong_target_is_one_line_and_78(run: Run) -> None:
    """As for `jobq run`."""
    ended = await run("kinds", "nowhere:queue")

    assert (ended.code, len(ended.err.splitlines())) == (78, 1)
