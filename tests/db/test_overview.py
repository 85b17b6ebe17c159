"""How the queues stand: what is counted, how far, of which time, and what that costs when very many jobs wait."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from jobq.core.histogram import bucket_of, upper_bound_ms
from jobq.core.job import WorkerId
from jobq.core.states import State
from jobq.core.worker import WorkerRow
from jobq.db.overview import COUNT_LIMIT, Count, Overview, QueueStats, Standing
from jobq.db.reports import JobFilter, Reports
from jobq.db.statements import load_statements, render
from jobq.db.store import KindCount
from tests.db.observe import Blocked
from tests.db.plans import (
    DEAD,
    DONE,
    HELD,
    MODES,
    READY,
    SCHEDULED,
    STALE,
    buffers,
    indexes,
    scanned,
)
from tests.db.rows import KIND, LEASE_S, QUEUE, new_worker, settle

if TYPE_CHECKING:
    from tests.conftest import Conn
    from tests.db.rows import Rows

NONE = Count(0)

_names = count(1)


@pytest.fixture
def overview(schema: str) -> Overview:
    """The figures of this test's schema."""
    return Overview(schema)


async def queues(rows: Rows, overview: Overview) -> dict[str, QueueStats]:
    """Return the queues by name, in their order."""
    return {one.queue: one for one in (await overview.look(rows.conn)).queues}


async def beat(rows: Rows, *served: str, lease_s: float = LEASE_S) -> WorkerId:
    """Let a worker say that it lives and serves these queues."""
    worker = WorkerRow(new_worker(), 4242, "web-1", "0", list(served), [KIND])
    await rows.store.beat(rows.conn, worker, lease_s)
    return worker.worker_id


# -- queues ----------------------------------------------------------------------------------------------


async def test_an_empty_schema_has_nothing_to_show(conn: Conn, overview: Overview) -> None:
    """Neither queues nor kinds are known before there is something of them."""
    assert await overview.look(conn) == Standing(
        workers=0, queues=[], unserved=[], running=[], window_s=3600.0, kinds=[]
    )


async def test_a_queue_is_known_by_anything_that_is_in_it(rows: Rows, overview: Overview) -> None:
    """One that has only dead letters, or only a worker, is not passed over."""
    await rows.waiting(queue="a-ready")
    await rows.scheduled(queue="b-scheduled")
    await rows.running(new_worker(), queue="c-running")
    await rows.dead(queue="d-dead")
    await beat(rows, "e-served")

    found = await queues(rows, overview)

    one = Count(1)
    assert {name: (q.ready, q.scheduled, q.running, q.dead, q.workers) for name, q in found.items()} == {
        "a-ready": (one, NONE, NONE, NONE, 0),
        "b-scheduled": (NONE, one, NONE, NONE, 0),
        "c-running": (NONE, NONE, one, NONE, 0),
        "d-dead": (NONE, NONE, NONE, one, 0),
        "e-served": (NONE, NONE, NONE, NONE, 1),
    }


async def test_a_job_is_counted_in_its_state_whatever_its_priority_and_worker(rows: Rows, overview: Overview) -> None:
    """Nothing is left out between the lanes, the workers and the kinds."""
    for priority in range(10):
        await rows.waiting(priority=priority)
        await rows.scheduled(priority=priority)
        await rows.running(priority=priority)
        await rows.dead(kind=f"kind-{priority}")
    worker_id = new_worker()
    for _ in range(5):
        await rows.running(worker_id)
    await rows.running(worker_id, queue="other")
    await settle(rows, "settle_done", await rows.running())

    found = await queues(rows, overview)

    assert found.keys() == {QUEUE, "other"}
    mail = found[QUEUE]
    assert (mail.ready, mail.scheduled, mail.running, mail.dead) == (Count(10), Count(10), Count(15), Count(10))
    assert found["other"].running == Count(1)


async def test_all_figures_are_of_one_moment(rows: Rows, overview: Overview, other: Conn, blocked: Blocked) -> None:
    """A job that dies while its queue is looked at is counted once: as running, which it was."""
    attempt = await rows.running()

    async with other.transaction():
        await other.execute(render("lock table @schema@.dead_letter in access exclusive mode", rows.store.schema))
        looking = await blocked(rows.conn, overview.look(rows.conn))
        await settle(rows, "settle_dead", attempt, conn=other)
    (mail,) = (await looking).queues

    assert (mail.running, mail.dead) == (Count(1), NONE)


async def test_the_oldest_ready_job_is_looked_for_in_every_lane(rows: Rows, overview: Overview) -> None:
    """Its age counts from when it was due, and neither what is scheduled nor what runs has one."""
    overdue = await rows.waiting(priority=9)
    held = await rows.running()
    await rows.waiting(priority=0)
    await rows.scheduled()
    await rows.run("update @schema@.job set run_at = now() - interval '200 s' where id = $1", overdue)
    await rows.run("update @schema@.job set run_at = now() - interval '1 day' where id = $1", held.id)
    await rows.scheduled(queue="later")

    found = await queues(rows, overview)

    assert found[QUEUE].oldest_ready_s == pytest.approx(200, abs=20)
    assert found["later"].oldest_ready_s is None


async def test_the_queue_that_lags_most_comes_first(rows: Rows, overview: Overview) -> None:
    """It is what a person who looks in a hurry has to see."""
    await rows.scheduled(queue="a")
    for queue, age_s in {"b": 10, "c": 1000, "d": 100}.items():
        job_id = await rows.waiting(queue=queue)
        await rows.run(
            "update @schema@.job set run_at = now() - make_interval(secs => $2) where id = $1", job_id, age_s
        )

    assert list(await queues(rows, overview)) == ["c", "d", "b", "a"]


@pytest.mark.parametrize(
    ("extra", "expected"), [(0, Count(COUNT_LIMIT)), (1, Count(COUNT_LIMIT, capped=True)), (500, Count(10_000, True))]
)
async def test_a_count_is_exact_up_to_ten_thousand(extra: int, expected: Count, rows: Rows, overview: Overview) -> None:
    """F78: what is above is said to be more, in each column by itself, and the lanes have one limit together."""
    jobs = """
        insert into @schema@.job (queue, kind, priority, run_at, enqueued_at, worker_id, payload)
        select 'mail', 'send_receipt', n % 10, now() + make_interval(hours => $2), now(), $3, '{}'
        from generate_series(1, $1) n
    """
    for hours, worker_id in [(-1, None), (1, None), (-1, new_worker())]:
        await rows.run(jobs, COUNT_LIMIT + extra, hours, worker_id)
    await rows.run(DEAD)
    await rows.run("delete from @schema@.dead_letter where id > $1", 2_000_000 + COUNT_LIMIT + extra)

    mail = (await queues(rows, overview))[QUEUE]

    assert [mail.ready, mail.scheduled, mail.running, mail.dead] == [expected] * 4


async def test_a_worker_counts_while_it_is_alive(rows: Rows, overview: Overview) -> None:
    """In each queue that it serves, and once in all; one whose lease has lapsed is not there."""
    await beat(rows, "mail", "default")
    await beat(rows, "mail")
    await beat(rows, "mail", "gone", lease_s=-1.0)

    standing = await overview.look(rows.conn)

    assert standing.workers == 2
    assert {one.queue: one.workers for one in standing.queues} == {"default": 1, "mail": 2}


# -- kinds -----------------------------------------------------------------------------------------------


def slow(kind: str, *, done: int, retried: int = 0, dead: int = 0, ms: dict[int, int]) -> KindCount:
    """Count attempts by how many milliseconds they took."""
    return KindCount(QUEUE, kind, done, retried, dead, {bucket_of(took): count for took, count in ms.items()})


async def test_the_counts_of_all_workers_are_added_up(rows: Rows, overview: Overview) -> None:
    """The histograms too, so that a percentile is that of all attempts and no mean of percentiles."""
    fast = slow("send", done=90, ms={10: 90})
    await rows.store.record_kind_stats(rows.conn, new_worker(), [fast, slow("print", done=0, dead=1, ms={70: 1})])
    await rows.store.record_kind_stats(
        rows.conn, new_worker(), [slow("send", done=4, retried=5, dead=1, ms={4000: 10})]
    )

    printed, sent = (await overview.look(rows.conn)).kinds

    assert (sent.queue, sent.kind, sent.done, sent.retried, sent.dead) == (QUEUE, "send", 94, 5, 1)
    assert sent.failure_rate == pytest.approx(0.06)
    assert (sent.p50_ms, sent.p95_ms) == (upper_bound_ms(bucket_of(10)), upper_bound_ms(bucket_of(4000)))
    assert (printed.kind, printed.failure_rate) == ("print", 1.0)


async def test_the_kinds_show_the_last_hour(rows: Rows, overview: Overview) -> None:
    """What was an hour ago says nothing of now, though it is kept for a day."""
    await rows.store.record_kind_stats(rows.conn, new_worker(), [slow("send", done=7, ms={10: 7})])
    await rows.run("update @schema@.kind_stat set at = now() - interval '61 min'")
    await rows.store.record_kind_stats(rows.conn, new_worker(), [slow("send", done=2, ms={10: 2})])

    (sent,) = (await overview.look(rows.conn)).kinds

    assert sent.done == 2


async def test_a_kind_of_two_queues_is_two(rows: Rows, overview: Overview) -> None:
    """Jobs of one kind may be enqueued to another queue, and be slower there."""
    elsewhere = KindCount("slow", "send", 1, 0, 0, {})
    await rows.store.record_kind_stats(rows.conn, new_worker(), [slow("send", done=2, ms={10: 2}), elsewhere])

    found = [(one.queue, one.done, one.p95_ms is None) for one in (await overview.look(rows.conn)).kinds]

    assert found == [(QUEUE, 2, False), ("slow", 1, True)]


# -- what nobody takes -----------------------------------------------------------------------------------


async def test_a_kind_that_is_ready_where_no_live_worker_takes_it_is_named(rows: Rows, overview: Overview) -> None:
    """F65: it takes a worker that is alive, serves this queue and has a handler; what is not due yet does not count."""
    await beat(rows, QUEUE, "dead-worker", lease_s=-1.0)
    await beat(rows, QUEUE, "other")
    for queue in (QUEUE, "other", "nobody", "dead-worker"):
        await rows.waiting(queue=queue)
    await rows.waiting(queue=QUEUE, kind="renamed", priority=9)
    await rows.waiting(queue=QUEUE, kind="renamed", priority=0)
    await rows.scheduled(queue="other", kind="tomorrow")
    await rows.running(queue="other", kind="started")

    found = (await overview.look(rows.conn)).unserved

    assert [(one.queue, one.kind) for one in found] == [
        ("dead-worker", KIND),
        (QUEUE, "renamed"),
        ("nobody", KIND),
    ]


async def test_a_time_out_is_proposed_for_the_kind_in_all_its_queues(rows: Rows, overview: Overview) -> None:
    """As it is stated for all of them; what too few attempts are known of has none."""
    for queue in ("mail", "backfill"):
        counts = [KindCount(queue, "send", 60, 0, 0, {bucket_of(2_000): 60}), slow("rare", done=9, ms={10: 9})]
        await rows.store.record_kind_stats(rows.conn, new_worker(), counts)
    await rows.run(
        "insert into @schema@.kind_stat (at, worker_id, done, retried, dead, queue, kind, buckets, counts)"
        " select now() - interval '2 hours', gen_random_uuid(), 999, 0, 0, 'mail', 'rare', '{1}', '{999}'"
    )

    kinds = (await overview.look(rows.conn)).kinds
    durations = await overview.durations(rows.conn)

    assert [(one.queue, one.kind, one.proposed_timeout_s) for one in kinds] == [
        ("backfill", "send", 10.0),
        (QUEUE, "rare", None),
        (QUEUE, "send", 10.0),
    ]
    assert durations == {"send": {bucket_of(2_000): 120}, "rare": {bucket_of(10): 18}}


# -- what runs -------------------------------------------------------------------------------------------


async def test_what_runs_is_shown_by_kind_with_its_oldest(rows: Rows, overview: Overview) -> None:
    """In all workers, whether they live or not, the longest first; what waits is none of it."""
    first, worker_id = await rows.running(kind="send"), new_worker()
    for kind in ("send", "print"):
        await rows.running(worker_id, kind=kind)
    await rows.running(worker_id, kind="print", queue="backfill")
    await rows.waiting(kind="send")
    await rows.run("update @schema@.job set claimed_at = now() - interval '200 s' where id = $1", first.id)
    await rows.run("update @schema@.job set claimed_at = now() - interval '100 s' where queue = 'backfill'")

    running = (await overview.look(rows.conn)).running

    assert [(one.queue, one.kind, one.running) for one in running] == [
        (QUEUE, "send", 2),
        ("backfill", "print", 1),
        (QUEUE, "print", 1),
    ]
    assert [one.oldest_s for one in running] == [
        pytest.approx(200, abs=20),
        pytest.approx(100, abs=20),
        pytest.approx(0, abs=20),
    ]


# -- what it costs ---------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A statement, its arguments as literals, and the indexes that it may use."""

    statement: str
    arguments: str
    indexes: set[str]


DONE_IDS = {f"done_{slot}_id_idx" for slot in range(8)}
CASES = [
    Case("find_oldest_dead", "", {"dead_letter_died"}),
    Case("list_waiting", "50", {"job_pkey"}),
    Case("list_running", "50", {"job_held"}),
    Case("list_done", "50", DONE_IDS),
    Case("show_job", "1000007", {"job_pkey", *DONE_IDS}),
]
SMALL = {"worker_pkey"}


async def explain(rows: Rows, options: str, mode: str, statement: str, arguments: str) -> dict[str, Any]:
    """Return the plan of a statement, prepared as *mode* says."""
    name = f"it_{next(_names)}"
    text = load_statements(rows.store.schema)[statement]
    await rows.run(f"set plan_cache_mode = {mode}; prepare {name} as {text}")
    call = f"{name} ({arguments})" if arguments else name
    plan: dict[str, Any] = json.loads(await rows.value(f"explain (format json, {options}) execute {call}"))[0]["Plan"]
    return plan


async def test_no_statement_scans_a_long_table(rows: Rows) -> None:
    """F78: with the statistics of empty tables and with true ones, generic or custom plan, each walks its own index."""
    await rows.run(";".join([STALE, READY, SCHEDULED, HELD, DEAD, DONE]))
    faults = {}
    for statistics in ("stale", "true"):
        if statistics == "true":
            await rows.run("analyze @schema@.job, @schema@.dead_letter, @schema@.done")
        for mode in MODES:
            for case in CASES:
                plan = await explain(rows, "costs off", mode, case.statement, case.arguments)
                if scanned(plan) or indexes(plan) - SMALL != case.indexes:
                    faults[case.statement, statistics, mode] = scanned(plan) | indexes(plan)

    assert faults == {}


async def test_nothing_is_compiled(rows: Rows, overview: Overview) -> None:
    """PostgreSQL 15 compiled half a second for what runs ten milliseconds; here a table says whether it would."""
    await rows.run(
        """
        alter table @schema@.kind_stat rename to every_kind_stat;
        create view @schema@.kind_stat as
        select
            now() as at, 1 as done, 0 as retried, 0 as dead, 'mail' as queue, current_setting('jit') as kind,
            '{1}'::smallint[] as buckets, '{100}'::int[] as counts;
        """
    )

    (kind,) = (await overview.look(rows.conn)).kinds
    durations = await overview.durations(rows.conn)

    assert kind.kind == "off"
    assert durations == {"off": {1: 100}}


@pytest.mark.parametrize("mode", MODES)
async def test_counting_touches_no_more_than_it_counts(rows: Rows, mode: str) -> None:
    """F78: 130,000 jobs wait, and at most 10,001 of them are looked at in either column of a queue."""
    await rows.run(";".join([STALE, READY, SCHEDULED]))

    plan = await explain(rows, "analyze, buffers", mode, "list_queues", "")

    assert plan["Actual Rows"] == 2  # queues
    assert buffers(plan) < 3 * 10_001 + 2_000


async def test_the_list_of_what_runs_is_not_hidden_behind_what_waits(rows: Rows, schema: str) -> None:
    """What waits is newer here, and is not walked to find it."""
    attempt = await rows.running()
    await rows.run(";".join([STALE, READY]))

    plan = await explain(rows, "analyze, buffers", MODES[0], "list_running", "50")
    jobs = await Reports(schema).list_jobs(rows.conn, JobFilter(), states=[State.RUNNING], limit=50)

    assert [job.id for job in jobs] == [attempt.id]
    assert buffers(plan) < 100
