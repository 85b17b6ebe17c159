"""`jobq stats`: what people and programs see of the queues and the kinds."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from jobq.cli.stats import show_count, spell, spell_ms
from jobq.core.histogram import bucket_of
from jobq.core.worker import WorkerRow
from jobq.db.overview import Count
from jobq.db.store import KindCount
from tests.cli.conftest import Call, Start
from tests.db.rows import KIND, LEASE_S, QUEUE, new_worker

if TYPE_CHECKING:
    from tests.db.rows import Rows

LONG = "resize_image_for_the_gallery_of_the_shop"


async def fill(rows: Rows, *, queue: str = QUEUE, kind: str = KIND) -> None:
    """Make something of everything: of two ready jobs one is due for three hours, and attempts were just counted."""
    await rows.waiting(queue=queue)
    late = await rows.waiting(queue=queue, priority=9)
    await rows.run("update @schema@.job set run_at = now() - interval '3 hours 12 min 10 s' where id = $1", late)
    await rows.scheduled(queue=queue)
    held = await rows.running(new_worker(), queue=queue, kind=kind)
    await rows.run("update @schema@.job set claimed_at = now() - interval '100.3 s' where id = $1", held.id)
    await rows.dead(queue=queue)
    counts = KindCount(queue, kind, 1996, 3, 1, {bucket_of(100): 1900, bucket_of(3000): 100})
    await rows.store.record_kind_stats(rows.conn, new_worker(), [counts])


async def serve(rows: Rows, *queues: str) -> None:
    """Let a worker be alive."""
    await rows.store.beat(rows.conn, WorkerRow(new_worker(), 1, "web-1", "0", list(queues), [KIND]), LEASE_S)


async def test_the_age_of_the_oldest_ready_job_is_seen_first(rows: Rows, call: Call) -> None:
    """A line for each queue, in a pipe whole and without colour; then the kinds."""
    await fill(rows)
    await serve(rows, QUEUE, "default")

    ended = await call("stats")

    assert ended.code == 0
    header, mail, default, workers, empty, now, running, held, gap, window, kinds, sent = ended.out.splitlines()
    assert header.split() == ["QUEUE", "OLDEST", "READY", "READY", "SCHEDULED", "RUNNING", "DEAD", "WORKERS"]
    assert mail.split() == ["mail", "3", "h", "12", "min", "2", "1", "1", "1", "1"]
    assert default.split() == ["default", "-", "0", "0", "0", "0", "1"]
    assert (workers, empty, now, gap, window) == ("1 worker is alive.", "", "running now", "", "the last 1 h")
    assert running.split() == ["KIND", "QUEUE", "RUNNING", "OLDEST"]
    assert held.split() == ["send_receipt", "mail", "1", "1", "min", "40", "s"]
    assert kinds.split() == ["KIND", "QUEUE", "DONE", "RETRIED", "DEAD", "FAILED", "P50", "P95", "PROPOSED"]
    assert sent.split() == ["send_receipt", "mail", "1,996", "3", "1", "0.2%", "108", "ms", "108", "ms", "15", "s"]


async def test_a_queue_that_nobody_serves_is_named(rows: Rows, call: Call) -> None:
    """Jobs that are ready and have no worker are what a person looks for; a queue at rest needs none."""
    await rows.waiting(queue="orphan")
    await rows.scheduled(queue="resting")
    await serve(rows, QUEUE)

    ended = await call("stats")

    assert "\nNo live worker serves these queues, whose jobs are ready: orphan.\n1 worker is alive.\n" in ended.out


async def test_many_queues_that_nobody_serves_are_not_all_named(rows: Rows, call: Call) -> None:
    """The table has them."""
    for number in range(7):
        await rows.waiting(queue=f"q{number}")

    ended = await call("stats")

    [remark] = [line for line in ended.out.splitlines() if line.startswith("No live worker")]
    assert remark.partition("ready: ")[2].count("q") == 5
    assert remark.endswith(" and 2 more.")


async def test_a_kind_that_nobody_knows_is_named(rows: Rows, call: Call) -> None:
    """F65: its queue is served, and yet it would wait for ever: a renamed kind, or an old release of the worker."""
    await rows.waiting(kind="renamed")
    await rows.waiting(queue="orphan", kind="renamed")
    await serve(rows, QUEUE)

    ended = await call("stats")

    assert "\nNo live worker serves these queues, whose jobs are ready: orphan.\n" in ended.out
    assert "\nNo live worker has a handler for these kinds, whose jobs are ready: renamed in mail.\n" in ended.out


async def test_an_empty_schema_is_said_to_be_empty(rows: Rows, call: Call) -> None:
    """No table without lines."""
    ended = await call("stats")

    assert (ended.code, ended.out) == (0, "No queue has a job or a dead letter.\n0 workers are alive.\n")


async def test_programs_get_numbers(rows: Rows, call: Call) -> None:
    """Seconds and milliseconds, and of each count whether it is one or a limit."""
    await fill(rows)
    await rows.run(
        """
        insert into @schema@.job (queue, kind, run_at, enqueued_at, payload)
        select 'mail', 'send_receipt', now() + interval '1 day', now(), '{}' from generate_series(1, 10001)
        """
    )

    standing = json.loads((await call("stats", "--json")).out)

    [mail], [held], [sent] = standing["queues"], standing["running"], standing["kinds"]
    assert (standing["workers"], standing["window_s"]) == (0, 3600.0)
    assert 11_530 < mail.pop("oldest_ready_s") < 11_600
    assert mail == {
        "queue": "mail",
        "ready": {"count": 2, "capped": False},
        "scheduled": {"count": 10000, "capped": True},
        "running": {"count": 1, "capped": False},
        "dead": {"count": 1, "capped": False},
        "workers": 0,
    }
    assert 100 < held.pop("oldest_s") < 160
    assert held == {"queue": "mail", "kind": "send_receipt", "running": 1}
    assert sent.keys() == {
        *("queue", "kind", "done", "retried", "dead", "failure_rate", "p50_ms", "p95_ms", "proposed_timeout_s")
    }
    assert (sent["done"], sent["failure_rate"], sent["proposed_timeout_s"]) == (1996, 0.002, 15.0)


async def test_the_tables_fit_a_terminal_of_80_columns(
    rows: Rows, schema: str, start: Start, terminal: tuple[int, int]
) -> None:
    """Names are cut before numbers are."""
    await fill(rows, queue=LONG, kind=LONG)
    person, command = terminal

    running = await start("stats", "--schema", schema, stdout=command, COLUMNS="80", NO_COLOR="1", TERM="dumb")
    await running.ends()
    lines = os.read(person, 65536).decode().splitlines()

    assert max(len(line) for line in lines if not line.startswith("No live worker")) <= 80
    assert lines[1].split()[:4] == ["resize_image_fo…", "3", "h", "12"]
    assert lines[-1].split()[:2] == ["resize_image_…", "resize_…"]
    assert lines[-1].split()[-6:] == ["108", "ms", "108", "ms", "15", "s"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0 s"),
        (-3.0, "0 s"),
        (59.9, "59 s"),
        (60.0, "1 min"),
        (192.5, "3 min 12 s"),
        (3600.0, "1 h"),
        (3659.0, "1 h"),
        (18_120.0, "5 h 2 min"),
        (86_400.0, "1 d"),
        (86_400.0 + 60, "1 d"),
        (3 * 86_400.0 + 4 * 3600 + 59, "3 d 4 h"),
    ],
)
def test_a_time_is_spelt_in_its_two_largest_units(seconds: float, expected: str) -> None:
    """Exact enough to see whether it grows, and never below zero, as clocks may differ."""
    assert spell(seconds) == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(None, "-"), (1.0, "1 ms"), (999.4, "999 ms"), (999.6, "1.0 s"), (59_900.0, "59.9 s"), (60_000.0, "1 min")],
)
def test_a_duration_of_attempts_is_spelt_short(milliseconds: float | None, expected: str) -> None:
    """In the unit that fits."""
    assert spell_ms(milliseconds) == expected


def test_a_count_that_is_capped_says_so() -> None:
    """10,000 and more than 10,000 are different answers."""
    assert (show_count(Count.of(10_000)), show_count(Count.of(10_001))) == ("10,000", "10,000+")
