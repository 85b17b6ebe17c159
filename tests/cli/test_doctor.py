"""`jobq doctor`: what people and programs see of the findings, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobq.core.histogram import bucket_of
from jobq.db.store import KindCount
from jobq.embedded import temporary
from tests.cli.conftest import APP_DIR, Call, Run
from tests.db.rows import KIND, QUEUE, new_worker

if TYPE_CHECKING:
    from tests.db.rows import Rows

UNSTATED = """
import os
from jobq import Queue

queue = Queue(schema=os.environ["APP_SCHEMA"])


@queue.task(kind="send_receipt", queue="mail", timeout=1)
async def send_receipt(order_id: int) -> None: ...
"""


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A durable server: that of the other tests is not, and doctor says so."""
    with temporary() as server:
        yield server.dsn


async def test_a_healthy_system_is_one_line(rows: Rows, call: Call) -> None:
    """And exit code 0."""
    ended = await call("doctor")

    assert (ended.code, ended.out, ended.err) == (0, "Nothing found that will hurt.\n", "")


async def test_each_finding_has_its_remedy_and_the_worst_says_the_code(rows: Rows, call: Call) -> None:
    """4 for what is worth a look, 5 for what will hurt: neither is that of a failure."""
    await rows.dead()
    await rows.run("update @schema@.dead_letter set died_at = now() - interval '2 days'")
    look = await call("doctor")
    await rows.run("drop index @schema@.dead_letter_died")

    ended = await call("doctor")

    assert (look.code, ended.code) == (4, 5)
    assert look.out.splitlines()[-1] == "1 worth a look"
    title, detail, remedy, empty, second, *_, last = ended.out.splitlines()
    assert title == "will hurt: index dead_letter_died is missing"
    assert detail.startswith("  what looked up")
    assert remedy.startswith("  remedy: create index concurrently dead_letter_died on")
    assert (empty, second) == ("", "worth a look: 1 dead letter, the oldest 2 days old")
    assert last == "1 will hurt, 1 worth a look"


async def test_programs_get_a_list(rows: Rows, call: Call) -> None:
    """With a code for each rule, and what was not seen."""
    await rows.waiting()

    ended = await call("doctor", "--json")

    found = json.loads(ended.out)
    assert ended.code == 5
    assert found["unseen"] == []
    [finding] = found["findings"]
    assert finding.keys() == {"severity", "code", "title", "detail", "remedy"}
    assert (finding["severity"], finding["code"]) == ("will hurt", "unserved")


async def test_an_application_adds_the_rules_of_its_kinds(rows: Rows, run: Run, tmp_path: Path) -> None:
    """Its schema holds, and what it does not state is found."""
    (tmp_path / "shop.py").write_text(UNSTATED)
    counts = KindCount(QUEUE, KIND, 9, 0, 0, {bucket_of(950): 9})
    await rows.store.record_kind_stats(rows.conn, new_worker(), [counts])

    ended = await run("doctor", "shop:queue", "--json")
    stated = await run("doctor", "app:queue", "--app-dir", APP_DIR)

    assert [one["code"] for one in json.loads(ended.out)["findings"]] == ["slow-kind", "on-duplicate"]
    assert (ended.code, stated.code) == (5, 0)


async def test_a_missing_schema_is_a_wrong_configuration(dsn: str, run: Run) -> None:
    """There is nothing to be looked at."""
    ended = await run("doctor", "--schema", "nowhere")

    assert (ended.code, ended.out) == (78, "")
    assert "run `jobq migrate --schema nowhere` once" in ended.err
