"""An enqueue is part of the caller's transaction, and leaves the caller's connection as it was."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from jobq import EnqueueError, LargePayloadWarning, NotInTransactionError, PayloadError, Queue
from jobq.core.states import State
from tests.db.observe import sent_on
from tests.db.rows import KIND, QUEUE, Rows

if TYPE_CHECKING:
    from tests.conftest import Conn

SECOND = timedelta(seconds=1)


# -- the caller's transaction ------------------------------------------------------------------------


async def test_a_job_exists_exactly_if_its_transaction_commits(rows: Rows, queue: Queue, other: Conn) -> None:
    """Others see it after the commit, not before, and it is ready."""
    async with rows.conn.transaction():
        answer = await queue.enqueue(KIND, {"order_id": 7}, queue=QUEUE, conn=rows.conn)
        seen_before = await Rows(other, rows.store).state_of(answer.id)
    seen_after = await Rows(other, rows.store).state_of(answer.id)

    assert answer.created
    assert (seen_before, seen_after) == (State.ABSENT, State.WAITING)
    assert (await rows.reclaimed(answer.id)).fence == 1


async def test_a_rollback_takes_the_job_along(rows: Rows, queue: Queue) -> None:
    """No job and no idempotency key is left of it."""
    before = await rows.contents()

    transaction = rows.conn.transaction()
    await transaction.start()
    await queue.enqueue(KIND, {}, queue=QUEUE, idempotency_key="receipt:7", conn=rows.conn)
    await transaction.rollback()

    assert await rows.contents() == before


async def test_a_savepoint_takes_its_jobs_along(rows: Rows, queue: Queue) -> None:
    """What was enqueued before and after the savepoint stays; its key may be used again."""
    async with rows.conn.transaction():
        before = await queue.enqueue(KIND, {}, queue=QUEUE, conn=rows.conn)
        savepoint = rows.conn.transaction()
        await savepoint.start()
        await queue.enqueue(KIND, {}, queue=QUEUE, idempotency_key="receipt:7", conn=rows.conn)
        await savepoint.rollback()
        after = await queue.enqueue(KIND, {}, queue=QUEUE, idempotency_key="receipt:7", conn=rows.conn)

    assert after.created
    assert await rows.ids() == [before.id, after.id]


async def test_a_connection_outside_a_transaction_is_refused(rows: Rows, queue: Queue) -> None:
    """The atomicity that the caller expects would be lost silently, so it has to be waived aloud."""
    with sent_on(rows.conn) as sent, pytest.raises(NotInTransactionError, match="autocommit=True"):
        await queue.enqueue(KIND, {}, queue=QUEUE, conn=rows.conn)
    with sent_on(rows.conn) as sent_by_many, pytest.raises(NotInTransactionError):
        await queue.enqueue_many([queue.job(KIND)], queue=QUEUE, conn=rows.conn)

    assert (sent, sent_by_many, await rows.ids()) == ([], [], [])


async def test_autocommit_commits_at_once(rows: Rows, queue: Queue, other: Conn) -> None:
    """On a connection outside a transaction the job is there when the call returns."""
    answer = await queue.enqueue(KIND, {}, queue=QUEUE, conn=rows.conn, autocommit=True)

    assert await Rows(other, rows.store).ids() == [answer.id]


async def test_autocommit_inside_a_transaction_belongs_to_it(rows: Rows, queue: Queue) -> None:
    """It allows a connection outside a transaction; inside one nothing changes."""
    transaction = rows.conn.transaction()
    await transaction.start()
    await queue.enqueue(KIND, {}, queue=QUEUE, conn=rows.conn, autocommit=True)
    await transaction.rollback()

    assert await rows.ids() == []


async def test_without_a_connection_the_pool_commits_at_once(rows: Rows, queue: Queue) -> None:
    """The queue's own pool is used, in a transaction of its own."""
    answer = await queue.enqueue(KIND, {}, queue=QUEUE)

    assert await rows.ids() == [answer.id]


async def test_a_pools_connection_is_a_connection(rows: Rows, queue: Queue) -> None:
    """What `pool.acquire()` lends is accepted as it is."""
    pool = await queue.pool()

    async with pool.acquire() as conn, conn.transaction():
        answer = await queue.enqueue(KIND, {}, queue=QUEUE, conn=conn)

    assert await rows.ids() == [answer.id]


# -- refusals ----------------------------------------------------------------------------------------


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


DEEP = "$" + ".in" * 100
NOW = datetime.now(UTC)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": ({"payload": {"lines": [{"price": float("nan")}]}}, "$.lines[0].price"),
    "infinity": ({"payload": {"price": float("-inf")}}, "$.price"),
    "NUL": ({"payload": {"name": "a\0b"}}, "$.name"),
    "NUL in a key": ({"payload": {"a\0b": 1}}, "$['a\\x00b']"),
    "surrogate": ({"payload": {"name": "\ud800"}}, "$.name"),
    "65 bits": ({"payload": {"id": 2**63}}, "$.id"),
    "depth": ({"payload": nested(101)}, DEEP[:90] + " ... " + DEEP[-90:]),
    "300 kB": ({"payload": {"text": "x" * 300_000}}, "$.text"),
    "a list": ({"payload": [1]}, "$"),
    "signature": ({"kind": "registered", "payload": {"order_id": "seven"}}, "$.order_id"),
    "missing": ({"kind": "registered", "payload": {}}, "$.order_id"),
    "unknown": ({"queue": None}, "queue"),
    "kind": ({"kind": "send receipt"}, "kind"),
    "kind NUL": ({"kind": "send\0"}, "kind"),
    "queue": ({"queue": "q" * 61}, "queue"),
    "empty key": ({"idempotency_key": ""}, "idempotency_key"),
    "key NUL": ({"idempotency_key": "a\0"}, "idempotency_key"),
    "long key": ({"idempotency_key": "ä" * 257}, "idempotency_key"),
    "key type": ({"idempotency_key": 7}, "idempotency_key"),
    "answer": ({"idempotency_for": -1}, "idempotency_for"),
    "long answer": ({"idempotency_for": timedelta(days=400)}, "idempotency_for"),
    "priority": ({"priority": 10}, "priority"),
    "priority type": ({"priority": True}, "priority"),
    "attempts": ({"max_attempts": 0}, "max_attempts"),
    "naive": ({"run_at": datetime(2026, 1, 1)}, "run_at"),
    "far": ({"run_at": NOW + timedelta(days=3661)}, "run_at"),
    "milliseconds": ({"run_at": timedelta(days=1_000_000)}, "run_at"),
    "impossible": ({"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "run_at"),
    "a number": ({"run_at": 1_700_000_000}, "run_at"),
    "conn": ({"conn": object()}, "conn"),
}


async def test_a_refusal_sends_nothing_and_leaves_the_transaction_usable(rows: Rows, queue: Queue) -> None:
    """Whatever is refused, it is before any SQL, by a typed error that names the field, and the rest commits."""

    @queue.task(kind="registered", queue=QUEUE)
    async def registered(order_id: int) -> None: ...

    async def refused_field(kind: str = KIND, payload: Any = None, **options: Any) -> str:
        with pytest.raises(EnqueueError) as caught:
            await queue.enqueue(kind, payload, **{"queue": QUEUE, "conn": rows.conn, **options})
        assert isinstance(caught.value, PayloadError) is caught.value.field.startswith("$")
        return caught.value.field

    async with rows.conn.transaction():
        await rows.run("create table @schema@.orders (id int)")
        with sent_on(rows.conn) as sent:
            fields = {name: await refused_field(**options) for name, (options, _) in REFUSED.items()}
        good = await queue.enqueue(KIND, {}, queue=QUEUE, conn=rows.conn)

    assert fields == {name: field for name, (_, field) in REFUSED.items()}
    assert sent == []
    assert (await rows.ids(), await rows.count("orders")) == ([good.id], 0)


async def test_a_refused_payload_is_a_payload_error(queue: Queue) -> None:
    """The message says what happened, shows the value and names the remedy."""
    with pytest.raises(PayloadError, match=r"send_receipt.*\$\.price = nan .*finite.*pass None"):
        await queue.enqueue(KIND, {"price": float("nan")}, queue=QUEUE)


# -- the caller's connection -------------------------------------------------------------------------


class Row(asyncpg.Record):
    """What callers make of records so as to write `row.id`."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def _as_binary_jsonb(value: object) -> bytes:
    return b"\x01" + json.dumps(value).encode()


def _never(value: object) -> object:
    raise AssertionError("the library asked for a codec of the caller's")


CODECS: dict[str, dict[str, dict[str, Any]]] = {
    "text": {name: {"encoder": json.dumps, "decoder": json.loads} for name in ("json", "jsonb")},
    "binary": {
        "json": {"encoder": lambda value: json.dumps(value).encode(), "decoder": json.loads, "format": "binary"},
        "jsonb": {"encoder": _as_binary_jsonb, "decoder": lambda data: json.loads(data[1:]), "format": "binary"},
    },
    "str": {name: {"encoder": str, "decoder": str} for name in ("json", "jsonb")},
    "failing": {name: {"encoder": _never, "decoder": _never} for name in ("json", "jsonb")},
}


@pytest.fixture
async def own_conn(dsn: str) -> Any:
    """The connection of a caller who has set it up in its own way."""
    conn = await asyncpg.connect(
        dsn, record_class=Row, server_settings={"search_path": "pg_temp, public", "TimeZone": "Asia/Kathmandu"}
    )
    yield conn
    conn.terminate()


@pytest.mark.parametrize("codecs", CODECS)
async def test_the_callers_codecs_do_not_touch_a_payload(rows: Rows, queue: Queue, own_conn: Any, codecs: str) -> None:
    """Stored is the object itself, singly and in bulk, and the caller's settings are what they were (F60)."""
    for name, codec in CODECS[codecs].items():
        await own_conn.set_type_codec(name, schema="pg_catalog", **codec)
    await own_conn.execute(
        "set datestyle = 'German'; set intervalstyle = 'sql_standard'; set extra_float_digits = -15;"
        " set bytea_output = 'escape'; set statement_timeout = '7s';"
        " set default_transaction_isolation = 'repeatable read'"
    )
    await own_conn.execute("load 'plpgsql'")  # whose first use adds settings of its own
    before = await own_conn.fetch("show all")
    async with own_conn.transaction():
        one = await queue.enqueue(
            KIND, {"n": [1, "ä"]}, queue=QUEUE, run_at=NOW + timedelta(days=1, microseconds=7), conn=own_conn
        )
        two = await queue.enqueue_many(
            [queue.job(KIND, {"n": [1, "ä"]}).with_options(idempotency_key="a")] * 2,
            queue=QUEUE,
            run_at=timedelta(days=1),
            conn=own_conn,
        )

    assert await rows.value("select array_agg(distinct payload) from @schema@.job") == ['{"n": [1, "ä"]}']
    assert await rows.ids() == [one.id, two[0].id]
    assert (await rows.job(one.id))["run_at"] == NOW + timedelta(days=1, microseconds=7)
    assert await own_conn.fetch("show all") == before


# -- when it is due, and how it is ranked ------------------------------------------------------------


async def due(rows: Rows, queue: Queue, run_at: datetime | timedelta | None) -> tuple[timedelta, timedelta]:
    """Return how much later than asked for a job is due, enqueued singly and in bulk."""
    now = await rows.value("select clock_timestamp()")
    one = await queue.enqueue(KIND, {}, queue=QUEUE, run_at=run_at)
    (two,) = await queue.enqueue_many([queue.job(KIND)], queue=QUEUE, run_at=run_at)
    asked = run_at if isinstance(run_at, datetime) else now + (run_at or timedelta())
    return (await rows.job(one.id))["run_at"] - asked, (await rows.job(two.id))["run_at"] - asked


async def test_a_time_with_a_zone_is_kept_exactly(rows: Rows, queue: Queue) -> None:
    """To the microsecond, whatever its zone."""
    at = (NOW + timedelta(hours=1)).replace(microsecond=123_456).astimezone(timezone(timedelta(hours=5, minutes=45)))

    assert await due(rows, queue, at) == (timedelta(), timedelta())


@pytest.mark.parametrize("run_at", [None, timedelta(0), timedelta(hours=2), timedelta(days=3660)], ids=str)
async def test_a_delay_counts_from_the_databases_now(rows: Rows, queue: Queue, run_at: timedelta | None) -> None:
    """Not from the clock of the process that enqueues."""
    one, two = await due(rows, queue, run_at)

    assert timedelta(0) <= one < 5 * SECOND
    assert timedelta(0) <= two < 5 * SECOND


@pytest.mark.parametrize(
    "run_at",
    [NOW - timedelta(days=30), datetime(1, 1, 2, tzinfo=UTC), timedelta(days=-3)],
    ids=["last month", "antiquity", "minus three days"],
)
async def test_a_time_in_the_past_means_now(rows: Rows, queue: Queue, run_at: datetime | timedelta) -> None:
    """So that nothing is put behind a claim that has passed."""
    earliest = await rows.value("select clock_timestamp()")
    one = await queue.enqueue(KIND, {}, queue=QUEUE, run_at=run_at)
    (two,) = await queue.enqueue_many([queue.job(KIND)], queue=QUEUE, run_at=run_at)

    latest = await rows.value("select clock_timestamp()")
    for answer in (one, two):
        job = await rows.job(answer.id)
        assert earliest <= job["run_at"] == job["enqueued_at"] <= latest


async def test_what_is_stated_is_stored(rows: Rows, queue: Queue) -> None:
    """Priority, limit of attempts, names and key, singly and in bulk; 60 bytes of queue are fine."""
    names = {"queue": "q" * 60, "priority": 0, "max_attempts": 3}
    one = await queue.enqueue("k" * 100, {"a": 1}, idempotency_key="ä" * 256, **names)  # type: ignore[arg-type]
    job = queue.job("k" * 100, {"a": 1}).with_options(idempotency_key="é" * 256)

    (two,) = await queue.enqueue_many([job], **names)  # type: ignore[arg-type]

    columns = "queue, kind, priority, max_attempts, payload, attempt, fence, worker_id, errors"
    stored = [await rows.row(f"select {columns} from @schema@.job where id = $1", answer.id) for answer in (one, two)]
    assert tuple(stored[0]) == ("q" * 60, "k" * 100, 0, 3, '{"a": 1}', 0, 0, None, None)
    assert stored[1] == stored[0]


async def test_a_handler_brings_its_queue(rows: Rows, queue: Queue) -> None:
    """A bound job goes to its handler's queue unless the call states another, with priority 5."""

    @queue.task(kind="print", queue="paper")
    async def print_receipt(order_id: int) -> None: ...

    await queue.enqueue(print_receipt.bind(order_id=7))
    await queue.enqueue(print_receipt.bind(order_id=8), queue="glossy")
    await queue.enqueue("print", {"order_id": 9})

    stored = await rows.value("select array_agg((queue, priority, payload)::text order by id) from @schema@.job")
    assert stored == [
        '(paper,5,"{""order_id"": 7}")',
        '(glossy,5,"{""order_id"": 8}")',
        '(paper,5,"{""order_id"": 9}")',
    ]


# -- size --------------------------------------------------------------------------------------------


async def test_a_large_payload_is_warned_about_where_it_is_enqueued(rows: Rows, queue: Queue) -> None:
    """200 kB are stored, and the warning points at the caller's line, singly and in bulk."""
    large = queue.job(KIND, {"text": "x" * 200_000})

    with pytest.warns(LargePayloadWarning, match="200,011 bytes") as singly:
        await queue.enqueue(large, queue=QUEUE)
    with pytest.warns(LargePayloadWarning, match="200,011 bytes") as in_bulk:
        await queue.enqueue_many([large], queue=QUEUE)
    line = sys._getframe().f_lineno

    assert [(one.filename, one.lineno) for one in singly] == [(__file__, line - 3)]
    assert [(one.filename, one.lineno) for one in in_bulk] == [(__file__, line - 1)]
    assert await rows.value("select array_agg(length(payload ->> 'text')) from @schema@.job") == [200_000] * 2


async def test_bytes_are_counted_not_characters(queue: Queue) -> None:
    """5,000 letters of two bytes each are 10 kB, which is large."""
    with pytest.warns(LargePayloadWarning, match="10,011 bytes"):
        await queue.enqueue(KIND, {"text": "é" * 5_000}, queue=QUEUE)


@pytest.mark.filterwarnings("ignore::jobq.LargePayloadWarning")
async def test_what_the_library_accepts_the_database_accepts(rows: Rows, queue: Queue) -> None:
    """Numbers that are short in JSON and long in `jsonb` must not fail in the caller's transaction."""
    payload = {"weights": [1e300, 1e-300] * 9_000}

    async with rows.conn.transaction():
        await queue.enqueue(KIND, payload, queue=QUEUE, conn=rows.conn)

    assert await rows.count() == 1
