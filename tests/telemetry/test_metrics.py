"""`/metrics` of a real worker: each number says what happened, and a scrape asks nobody."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import REGISTRY, Counter

from jobq import Job, Permanent, Queue, Snooze
from jobq.core import usual
from jobq.core.states import State
from jobq.telemetry.events import JobSlow, LeaseLost, ListenUnavailable, OverviewFailed
from jobq.worker import listener, lookout, slow_jobs, supervisor
from tests.db.entries import NAME, add_entry, entries
from tests.db.rows import Rows
from tests.telemetry.conftest import Scraped
from tests.worker.asking import asking_in_thread
from tests.worker.conftest import AT_ONCE
from tests.worker.observe import Events, Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn

DOCS = Path(__file__).parents[2] / "docs" / "telemetry.md"


async def test_attempts_are_counted_by_outcome_and_kind(queue: Queue, jobs: Jobs, scraped: Scraped) -> None:
    """Each once, with the duration of those whose handler ran to an end."""

    @queue.task("work", max_attempts=3, backoff=AT_ONCE)
    async def work(job: Job, how: str) -> Snooze | None:
        if how == "fail":
            raise OSError
        if how == "die":
            raise Permanent
        return Snooze(3600) if how == "snooze" else None

    async with scraped() as scraper:
        await queue.enqueue_many([work.bind(how) for how in ("", "", "", "fail", "die", "snooze")])
        scrape = await scraper.until(lambda now: now.sum("jobq_attempts_total", kind="work") == 8)

    found = {how: scrape.value("jobq_attempts_total", kind="work", outcome=how) for how in ("done", "retried", "dead")}
    assert found == {"done": 3, "retried": 2, "dead": 2}
    assert scrape.value("jobq_attempts_total", kind="work", outcome="released") == 1
    assert scrape.value("jobq_attempt_duration_seconds_count", kind="work") == 7
    assert scrape.value("jobq_attempt_duration_seconds_bucket", kind="work", le="+Inf") == 7
    assert scrape.value("jobq_claimed_jobs_total", queue="default") == 8
    assert scrape.value("jobq_events_total", event="JobRetried") == 2


async def test_recurring_entries_are_counted_by_how_they_stand(rows: Rows, queue: Queue, scraped: Scraped) -> None:
    """Every state is there, so that an alert over one that nobody is in is no gap."""

    @queue.task("work")
    async def work() -> None: ...

    await add_entry(rows, "0 0 1 1 *")
    await entries(rows).pause_recurring(rows.conn, NAME, by="ann", why="x")

    async with scraped() as scraper:
        scrape = await scraper.until(lambda now: now.sum("jobq_recurring_entries") == 1)

    assert scrape.value("jobq_recurring_entries", state="paused") == 1
    assert scrape.value("jobq_recurring_entries", state="overdue") == 0


async def test_a_duration_falls_into_the_bucket_that_bounds_it(queue: Queue, jobs: Jobs, scraped: Scraped) -> None:
    """In seconds, cumulative, and their sum is how long handlers ran."""
    gate = asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        await gate.wait()

    async with scraped() as scraper:
        job = await queue.enqueue(work.bind())
        await jobs.become(job.id, State.RUNNING)
        asyncio.get_running_loop().call_later(0.1, gate.set)
        scrape = await scraper.until(lambda now: now.value("jobq_attempt_duration_seconds_count", kind="work"))

    run_s = scrape.value("jobq_attempt_duration_seconds_sum", kind="work")
    assert run_s >= 0.1
    buckets = {
        float(dict(labels)["le"]): count
        for (name, labels), count in scrape.samples.items()
        if name == "jobq_attempt_duration_seconds_bucket" and dict(labels)["kind"] == "work"
    }
    assert len(buckets) == 24
    assert buckets == {bound: float(run_s <= bound) for bound in buckets}


async def test_what_a_transaction_completes_is_counted(queue: Queue, jobs: Jobs, scraped: Scraped) -> None:
    """The settler never sees it; `jobq stats` counts it all the same."""

    @queue.task("pay")
    async def pay(job: Job) -> None:
        async with job.transaction():
            pass

    async with scraped(tally_s=0.02) as scraper:
        await queue.enqueue(pay.bind())
        await scraper.until(lambda now: now.value("jobq_attempts_total", kind="pay", outcome="done") == 1)

    assert await jobs.run("select sum(done) from @schema@.kind_stat where kind = 'pay'") == 1


async def test_a_lost_lease_is_counted(queue: Queue, seen: Events, jobs: Jobs, scraped: Scraped) -> None:
    """By kind, and not as an attempt that ended."""
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    async with scraped() as scraper:
        job = await queue.enqueue(work.bind())
        await started.wait()
        await jobs.steal(job.id, into="elsewhere")
        finish.set()
        await seen(LeaseLost)
        scrape = await scraper.until(lambda now: now.value("jobq_lost_leases_total", kind="work") == 1)

    assert scrape.sum("jobq_attempts_total", kind="work") == 0


async def test_a_slow_attempt_is_counted(
    queue: Queue, seen: Events, scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kind, once an attempt."""
    monkeypatch.setattr(slow_jobs, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(usual, "LEAST_S", 0.1)
    finish = asyncio.Event()

    @queue.task("work", timeout=1)
    async def work() -> None:
        await finish.wait()

    async with scraped() as scraper:
        before = await scraper.scrape()
        await queue.enqueue(work.bind())
        await seen(JobSlow)
        scrape = await scraper.until(lambda now: now.value("jobq_slow_attempts_total", kind="work") == 1)
        finish.set()

    assert before.value("jobq_slow_attempts_total", kind="work") == 0
    assert scrape.value("jobq_events_total", event="JobSlow") == 1


async def test_slots_and_what_holds_them_are_read_at_the_scrape(queue: Queue, jobs: Jobs, scraped: Scraped) -> None:
    """By queue and class of executor, with the age of the oldest attempt of each kind."""
    finish = asyncio.Event()

    @queue.task("work", queue="mail")
    async def work() -> None:
        await finish.wait()

    @queue.task("compute", queue="mail")
    def compute() -> None: ...

    async with scraped(slots={"mail": 3}) as scraper:
        await queue.enqueue_many([work.bind(), work.bind()])
        busy = await scraper.until(lambda now: now.value("jobq_slots_busy", queue="mail", executor="async") == 2)
        finish.set()
        idle = await scraper.until(lambda now: now.value("jobq_slots_busy", queue="mail", executor="async") == 0)

    assert busy.value("jobq_slots", queue="mail", executor="async") == 3
    assert busy.value("jobq_slots", queue="mail", executor="thread") == 3
    assert busy.value("jobq_oldest_running_seconds", kind="work") > 0
    assert busy.value("jobq_oldest_running_seconds", kind="compute") == 0
    assert idle.value("jobq_oldest_running_seconds", kind="work") == 0


async def test_wake_ups_are_told_apart(queue: Queue, seen: Events, jobs: Jobs, noop: Any, scraped: Scraped) -> None:
    """A notification, and a poll; a worker that does not poll has only looked at its start."""
    async with scraped(poll_s=0.05) as scraper:
        polled = await scraper.until(lambda now: now.value("jobq_wakeups_total", queue="default", source="poll") > 1)
    async with scraped(poll_s=30.0) as scraper:
        await scraper.until(lambda now: now.value("jobq_listener_up") == 1)
        while True:
            await jobs.become((await queue.enqueue(noop())).id, State.DONE)
            notified = await scraper.scrape()
            if notified.value("jobq_wakeups_total", queue="default", source="notification"):
                break

    assert polled.value("jobq_wakeups_total", queue="default", source="notification") == 0
    assert notified.value("jobq_wakeups_total", queue="default", source="poll") <= 1
    assert notified.value("jobq_claim_duration_seconds_count", queue="default") > 0
    assert notified.value("jobq_settle_duration_seconds_count") > 0


async def test_how_the_whole_queue_stands_is_read_now_and_then(
    queue: Queue, rows: Rows, noop: Any, scraped: Scraped
) -> None:
    """Depth, age, dead letters, workers; queues that are not served here are one, whatever they are called."""
    for number in range(3):
        await rows.waiting(kind="unknown", queue=f"backfill-{number}")
    await rows.scheduled(queue="default")
    await rows.run("update @schema@.job set run_at = now() - interval '1 hour' where queue = 'backfill-1'")
    letter = await rows.dead(queue="default")
    await rows.run("update @schema@.dead_letter set died_at = now() - interval '2 hours' where id = $1", letter)

    async with scraped() as scraper:
        scrape = await scraper.until(lambda now: now.value("jobq_queue_workers", queue="default") == 1)

    assert scrape.value("jobq_workers") == 1
    assert scrape.value("jobq_jobs", queue="other", state="ready") == 3
    assert 3600 <= scrape.value("jobq_oldest_ready_age_seconds", queue="other") < 3700
    assert scrape.value("jobq_unserved_kinds", queue="other") == 3
    assert scrape.value("jobq_queue_workers", queue="other") == 0
    assert scrape.value("jobq_jobs", queue="default", state="scheduled") == 1
    assert scrape.value("jobq_oldest_ready_age_seconds", queue="default") == 0
    assert scrape.value("jobq_dead_letters", queue="default") == 1
    assert 7200 <= scrape.value("jobq_oldest_dead_letter_age_seconds") < 7300
    assert scrape.value("jobq_overview_age_seconds") < 5


async def test_a_scrape_waits_for_no_query(
    seen: Events, conn: Conn, sql: Callable[[str], str], noop: Any, scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody gets at the dead letters the last reading is printed, with its age; that it fails is said once."""
    monkeypatch.setattr(lookout, "DEADLINE_S", 0.1)
    monkeypatch.setattr(lookout, "MOST_OF_THE_TIME", 1.0)
    async with scraped() as scraper:
        before = await scraper.until(lambda now: now.value("jobq_dead_letters", queue="default") == 0)
        async with conn.transaction():
            await conn.execute(sql("lock table @schema@.dead_letter in access exclusive mode"))
            await seen(OverviewFailed)
            stale = await scraper.until(lambda now: now.value("jobq_overview_age_seconds") > 0.3)
        await scraper.until(lambda now: now.value("jobq_overview_age_seconds") < 0.3)

    assert before.series == stale.series
    assert stale.value("jobq_dead_letters", queue="default") == 0
    assert stale.value("jobq_working") == 1
    assert len(seen.of(OverviewFailed)) == 1


async def test_a_blocked_event_loop_is_seen_from_outside(
    queue: Queue, jobs: Jobs, scraped: Scraped, listening: socket.socket
) -> None:
    """The scrape is answered from the side thread, and says since when the loop is overdue."""
    blocking, release = threading.Event(), threading.Event()

    @queue.task("block")
    async def block() -> None:
        blocking.set()
        release.wait(10)

    async with scraped() as scraper:

        def ask() -> None:
            assert blocking.wait(10)
            try:
                while True:
                    text = scraper.client.ask_now("/metrics").text
                    (line,) = (one for one in text.splitlines() if one.startswith("jobq_event_loop_blocked_seconds "))
                    if float(line.split()[1]) > 0.3:
                        return
            finally:
                release.set()

        async with asking_in_thread(ask):
            job = await queue.enqueue(block.bind())
            await jobs.become(job.id, State.DONE)
        after = await scraper.until(lambda now: now.value("jobq_event_loop_blocked_seconds") < 0.25)

    slow = after.value("jobq_event_loop_lag_seconds_count") - after.value(
        "jobq_event_loop_lag_seconds_bucket", le="0.2"
    )
    assert slow >= 1


async def test_the_number_of_series_is_constant(
    queue: Queue, rows: Rows, jobs: Jobs, noop: Any, scraped: Scraped
) -> None:
    """F108: with 1,000 random kinds and queues in the table and after 50 restarts; no id is a label."""
    async with scraped() as scraper:
        first = await scraper.until(lambda now: now.value("jobq_workers") >= 1)
        worker_id = str(scraper.worker.worker_id)
    await rows.run(
        "insert into @schema@.job (kind, queue, payload, run_at, enqueued_at)"
        " select 'kind-' || md5(n::text), 'queue-' || md5(n::text), '{}', now(), now() from generate_series(1, 1000) n"
    )
    await queue.enqueue(noop())
    for _ in range(50):
        async with scraped(overview_s=0.02) as scraper:
            last = await scraper.until(lambda now: now.value("jobq_jobs", queue="other", state="ready") == 1000)
            assert last.series == first.series

    assert worker_id not in first.text
    assert {label for _, labels in first.series for label, _ in labels} == {
        *("kind", "queue", "outcome", "source", "state", "executor", "event", "le")
    }


async def test_no_value_of_a_payload_is_among_them(queue: Queue, jobs: Jobs, scraped: Scraped) -> None:
    """F107: nor of an error."""

    @queue.task("charge", redact=("card_number",))
    async def charge(card_number: str) -> None:
        raise Permanent(f"refused {card_number}")

    async with scraped() as scraper:
        await queue.enqueue(charge.bind("4111111111111111"))
        scrape = await scraper.until(lambda now: now.value("jobq_attempts_total", kind="charge", outcome="dead"))

    assert "4111" not in scrape.text
    assert "refused" not in scrape.text


@pytest.mark.usefixtures("noop")
async def test_the_applications_own_metrics_come_along(scraped: Scraped) -> None:
    """What it keeps in the default registry, the process's memory among it."""
    own = Counter("shop_receipts", "Receipts sent.")
    try:
        own.inc(3)
        async with scraped() as scraper:
            scrape = await scraper.scrape()
    finally:
        REGISTRY.unregister(own)

    assert scrape.value("shop_receipts_total") == 3
    assert scrape.value("process_resident_memory_bytes") > 0


@pytest.mark.usefixtures("noop")
async def test_without_the_library_the_answer_names_the_remedy(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker runs as before, and reads nothing for nobody."""
    monkeypatch.setattr(supervisor, "can_be_shown", lambda: False)

    async with scraped() as scraper:
        answer = await scraper.client.ask("/metrics")
        healthy = await scraper.client.ask("/healthz")

    assert answer == (501, "metrics need prometheus-client: install jobq[metrics], and restart the worker\n")
    assert healthy.status == 200


@pytest.mark.usefixtures("noop")
async def test_a_listener_that_hears_nothing_is_down(
    seen: Events, scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has heard its own word."""
    monkeypatch.setattr(listener, "HEAR_S", 0.05)
    monkeypatch.setattr(listener, "TRY_AGAIN_S", 0.2)

    async def mute(*_: object) -> None: ...

    with monkeypatch.context() as muted:
        muted.setattr("jobq.db.store.Store.try_listener", mute)
        async with scraped() as scraper:
            await seen(ListenUnavailable)
            down = await scraper.scrape()
            muted.undo()
            up = await scraper.until(lambda now: now.value("jobq_listener_up") == 1)

    assert down.value("jobq_listener_up") == 0
    assert up.value("jobq_events_total", event="ListenRestored") == 1


# -- docs, dashboard, alerts ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("noop")
async def test_the_docs_list_every_metric(scraped: Scraped) -> None:
    """With its type, its labels and what it counts, as a worker prints it."""
    async with scraped() as scraper:
        scrape = await scraper.until(lambda now: now.value("jobq_workers") == 1)

    printed = []
    for family in scrape.families.values():
        if not family.name.startswith("jobq_"):
            continue
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        name = f"{family.name}_total" if family.type == "counter" else family.name
        shown = ", ".join(f"`{label}`" for label in labels)
        printed.append(f"| `{name}` | {family.type} | {shown} | {family.documentation} |".replace("|  |", "| |"))
    section = DOCS.read_text("utf-8").partition("<!-- metrics")[2].partition("<!-- /metrics -->")[0]
    assert section.splitlines()[3:] == printed
