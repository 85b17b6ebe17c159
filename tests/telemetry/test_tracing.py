"""Spans of enqueues and runs, and the link between them, as the SDK's in-memory exporter gets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode, get_current_span

from jobq import EnqueueError, Job, Permanent, Queue
from jobq.core.states import State
from jobq.telemetry.tracing import Tracing
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def of(self, kind: SpanKind) -> list[ReadableSpan]:
        """Return those of one kind, in the order of their ends."""
        return [span for span in self._exporter.get_finished_spans() if span.kind is kind]


@pytest.fixture
def spans() -> Spans:
    """A tracer provider of the test's own."""
    return Spans()


@pytest.fixture
async def queue(conn: Conn, dsn: str, schema: str, spans: Spans) -> AsyncIterator[Queue]:
    """A queue that is traced."""
    async with Queue(dsn, schema=schema, tracing=Tracing(spans.provider)) as queue:
        yield queue


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    """Return the spans that this one is linked to."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Return what a link to this span says."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def headers(jobs: Jobs) -> list[dict[str, str] | None]:
    """Return the headers of all live jobs, by id."""
    found = await jobs.run("select coalesce(json_agg(headers order by id), '[]')::text from @schema@.job")
    return json.loads(found)  # type: ignore[no-any-return]


async def test_a_run_is_linked_to_its_enqueue(queue: Queue, jobs: Jobs, working: Working, spans: Spans) -> None:
    """A trace of its own, not a child: the request has long been answered. Both name the job."""

    @queue.task("send", queue="mail")
    async def send(order_id: int) -> None: ...

    with spans.tracer.start_as_current_span("request") as request:
        job = await queue.enqueue(send.bind(order_id=7))
    with spans.tracer.start_as_current_span("around the worker"):
        async with working():
            await jobs.become(job.id, State.DONE)

    (enqueued,), (run,) = spans.of(SpanKind.PRODUCER), spans.of(SpanKind.CONSUMER)
    assert enqueued.parent is not None
    assert enqueued.parent.span_id == request.get_span_context().span_id
    assert links(run) == [ids(enqueued)]
    assert run.parent is None
    assert ids(run)[0] != ids(enqueued)[0]
    assert (enqueued.name, run.name) == ("enqueue send", "run send")
    assert dict(enqueued.attributes or {}) == {
        "messaging.system": "jobq",
        "messaging.operation.type": "send",
        "messaging.operation.name": "enqueue",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "jobq.kind": "send",
    }
    assert dict(run.attributes or {}) == {
        "messaging.system": "jobq",
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "jobq.kind": "send",
        "jobq.attempt": 1,
    }
    assert run.status.status_code is StatusCode.UNSET


async def test_what_a_handler_enqueues_belongs_to_its_run(
    queue: Queue, jobs: Jobs, working: Working, spans: Spans
) -> None:
    """So a chain of jobs can be followed in both directions; in its own transaction too."""

    @queue.task("first")
    async def first(job: Job) -> None:
        async with job.transaction() as conn:
            await queue.enqueue(second.bind(), conn=conn)

    @queue.task("second")
    def second() -> None:
        assert get_current_span().is_recording()

    await queue.enqueue(first.bind())
    async with working():
        await jobs.all_become(State.DONE, 2)

    enqueued = {span.name: span for span in spans.of(SpanKind.PRODUCER)}
    runs = {span.name: span for span in spans.of(SpanKind.CONSUMER)}
    parent = enqueued["enqueue second"].parent
    assert parent is not None
    assert (parent.trace_id, parent.span_id) == ids(runs["run first"])
    assert links(runs["run second"]) == [ids(enqueued["enqueue second"])]


async def test_jobs_of_one_bulk_are_linked_to_its_one_span(
    queue: Queue, jobs: Jobs, working: Working, spans: Spans
) -> None:
    """It says how many there were."""

    @queue.task("a")
    async def a() -> None: ...

    @queue.task("b")
    async def b() -> None: ...

    await queue.enqueue_many([a.bind(), b.bind(), a.bind()])
    async with working():
        await jobs.all_become(State.DONE, 3)

    (enqueued,) = spans.of(SpanKind.PRODUCER)
    assert enqueued.name == "enqueue"
    assert (enqueued.attributes or {})["messaging.batch.message_count"] == 3
    assert [links(run) for run in spans.of(SpanKind.CONSUMER)] == [[ids(enqueued)]] * 3


@pytest.mark.parametrize("key", [None, "once"])
async def test_headers_go_with_and_without_an_idempotency_key(queue: Queue, jobs: Jobs, spans: Spans, key: str) -> None:
    """And nothing else but the trace's context does: what the application has in its baggage stays there."""
    token = attach(baggage.set_baggage("customer", "Ada"))
    try:
        await queue.enqueue("unknown", {}, queue="mail", idempotency_key=key)
    finally:
        detach(token)

    (found,) = await headers(jobs)
    (enqueued,) = spans.of(SpanKind.PRODUCER)
    trace_id, span_id = ids(enqueued)
    assert found is not None
    assert found.keys() == {"traceparent"}
    assert found["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-")


@pytest.mark.parametrize(
    "provider", [NoOpTracerProvider(), TracerProvider(sampler=ALWAYS_OFF)], ids=["no SDK", "not sampled"]
)
async def test_what_nobody_records_costs_no_headers(
    conn: Conn, dsn: str, schema: str, jobs: Jobs, working: Working, provider: Any
) -> None:
    """Nor does the run look for a tracer."""
    async with Queue(dsn, schema=schema, tracing=Tracing(provider)) as queue:
        recording: list[bool] = []

        @queue.task("work")
        async def work() -> None:
            recording.append(get_current_span().is_recording())

        await queue.enqueue(work.bind())
        await queue.enqueue_many([work.bind(), work.bind().with_options(idempotency_key="x")])
        assert await headers(jobs) == [None] * 3
        async with working(queue):
            await jobs.all_become(State.DONE, 3)

    assert recording == [False] * 3


async def test_each_attempt_has_its_span_and_its_error(
    queue: Queue, jobs: Jobs, working: Working, spans: Spans
) -> None:
    """By type and message, with what is redacted covered; all of them linked to the one enqueue."""

    @queue.task("charge", max_attempts=3, backoff=AT_ONCE, redact=("card_number",))
    async def charge(job: Job, card_number: str) -> None:
        if job.attempt < 2:
            raise TimeoutError(f"no answer for {card_number}")
        raise Permanent(f"refused {card_number} at postgresql://app:secret@db/x")

    job = await queue.enqueue(charge.bind("4111111111111111"))
    async with working():
        await jobs.become(job.id, State.DEAD)

    (enqueued,) = spans.of(SpanKind.PRODUCER)
    runs = spans.of(SpanKind.CONSUMER)
    told = [
        (
            (run.attributes or {})["jobq.attempt"],
            run.status.status_code,
            (run.attributes or {})["error.type"],
            run.status.description,
            [(event.name, dict(event.attributes or {})) for event in run.events],
        )
        for run in runs
    ]
    assert [links(run) for run in runs] == [[ids(enqueued)]] * 2
    assert told == [
        (attempt, StatusCode.ERROR, kind, text, [("exception", {"exception.type": kind, "exception.message": text})])
        for attempt, kind, text in (
            (1, "TimeoutError", "no answer for ***"),
            (2, "jobq.errors.Permanent", "refused *** at postgresql://app:***@db/x"),
        )
    ]
    everything = "".join(span.to_json() for span in [*runs, enqueued])
    assert "4111" not in everything
    assert "secret" not in everything


async def test_the_traceback_on_record_begins_at_the_handler(
    queue: Queue, jobs: Jobs, working: Working, spans: Spans
) -> None:
    """Not at what stands around it."""

    @queue.task("work")
    async def work() -> None:
        raise Permanent("no")

    job = await queue.enqueue(work.bind())
    async with working():
        dead = await jobs.become(job.id, State.DEAD)

    assert "jobq/telemetry" not in dead.errors[0]["traceback"]
    assert "raise Permanent" in dead.errors[0]["traceback"]


async def test_an_enqueue_that_fails_says_so(queue: Queue, conn: Conn, sql: Callable[[str], str], spans: Spans) -> None:
    """Without what PostgreSQL quotes of the row."""
    await conn.execute(sql("alter table @schema@.job add constraint no_secret check (payload ->> 'card' is null)"))

    with pytest.raises(Exception, match="no_secret"):
        await queue.enqueue("work", {"card": "4111111111111111"}, queue="mail")
    with pytest.raises(EnqueueError):
        await queue.enqueue("work", {}, queue="mail", priority=77)

    (failed,) = spans.of(SpanKind.PRODUCER)
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "DatabaseError"
    assert "no_secret" in (failed.status.description or "")
    assert "4111" not in failed.to_json()


@pytest.mark.parametrize(
    "odd",
    [
        "[]",
        "{}",
        '{"traceparent": 7}',
        '{"traceparent": "nonsense"}',
        '{"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"}',
        '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}',
    ],
)
async def test_odd_headers_harm_nobody(queue: Queue, jobs: Jobs, working: Working, spans: Spans, odd: str) -> None:
    """Any client may write them; a producer that did not record is not followed either."""

    @queue.task("work")
    async def work() -> None: ...

    await jobs.run("select id from @schema@.enqueue('work', headers => $1::text::jsonb)", odd)
    async with working():
        await jobs.all_become(State.DONE, 1)

    assert spans.of(SpanKind.CONSUMER) == []


async def test_producers_in_other_languages_are_followed(
    queue: Queue, jobs: Jobs, working: Working, spans: Spans
) -> None:
    """The SQL function takes the headers of W3C Trace Context."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    sent = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "tracestate": "vendor=1"}

    @queue.task("work")
    async def work() -> None: ...

    await jobs.run("select id from @schema@.enqueue('work', headers => $1::text::jsonb)", json.dumps(sent))
    async with working():
        await jobs.all_become(State.DONE, 1)

    (run,) = spans.of(SpanKind.CONSUMER)
    (link,) = run.links
    assert (link.context.trace_id, link.context.span_id) == (int(trace, 16), 0xB7AD6B7169203331)
    assert link.context.trace_state.to_header() == "vendor=1"


async def test_a_run_that_is_cancelled_ends_its_span(queue: Queue, jobs: Jobs, working: Working, spans: Spans) -> None:
    """A time-out is an error of the run."""

    @queue.task("work", timeout=0.05, max_attempts=1)
    async def work() -> None:
        await asyncio.Event().wait()

    job = await queue.enqueue(work.bind())
    async with working():
        await jobs.become(job.id, State.DEAD)

    (run,) = spans.of(SpanKind.CONSUMER)
    assert (run.attributes or {})["error.type"] == "asyncio.exceptions.CancelledError"


async def test_middleware_runs_inside_the_span(queue: Queue, jobs: Jobs, working: Working, spans: Spans) -> None:
    """It may add to it."""

    @queue.middleware
    async def tag(job: Job, call_next: Any) -> object:
        get_current_span().set_attribute("shop.tenant", "a")
        return await call_next()

    @queue.task("work")
    async def work() -> None: ...

    job = await queue.enqueue(work.bind())
    async with working():
        await jobs.become(job.id, State.DONE)

    (run,) = spans.of(SpanKind.CONSUMER)
    assert (run.attributes or {})["shop.tenant"] == "a"
