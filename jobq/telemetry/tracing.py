"""OpenTelemetry: a span for each enqueue, a span for each run, and a link from the run to its enqueue.

    queue = Queue(tracing=Tracing())

An enqueue whose span is recorded puts its `traceparent` (and `tracestate`) into the job's headers; a run whose job
bears such headers is a trace of its own, linked to the enqueue's: it comes later, maybe again and again, so it is no
part of the request that asked for it. A job that was enqueued unrecorded runs without a span, and costs nothing. The
names of attributes are those of OpenTelemetry's conventions for messaging. Payloads are never among them.

Needs the extra `otel`; where spans go is the business of the SDK that the application sets up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import TypeVar

import msgspec

from jobq.core.job import ClaimedJob, Enqueued, JobRow
from jobq.core.outcomes import RetryPolicy, tell_failure
from jobq.core.redaction import cover_passwords
from jobq.errors import ConfigurationError

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Link,
        Span,
        SpanContext,
        SpanKind,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as error:
    raise ConfigurationError("tracing needs opentelemetry-api: install jobq[otel]") from error

T = TypeVar("T")

_W3C = TraceContextTextMapPropagator()
"""Not the application's own choice: baggage may hold what nobody wants in a table."""


class Tracing:
    """What a `Queue(tracing=...)` does with spans. *tracer_provider* None means the global one, whenever it is set."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = get_tracer("jobq", version("jobq"), tracer_provider)

    async def enqueue(self, rows: Sequence[JobRow], add: Callable[[str | None], Awaitable[T]]) -> T:
        """Add *rows* inside a span; *add* gets the headers that the jobs shall bear, None if nobody records it."""
        kinds, queues = {row.kind for row in rows}, {row.queue for row in rows}
        attributes = _attributes("send", "enqueue", kinds, queues)
        if len(rows) != 1:
            attributes["messaging.batch.message_count"] = len(rows)
        with self._tracer.start_as_current_span(
            _name("enqueue", kinds),
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            if not span.is_recording():
                return await add(None)
            carrier: dict[str, str] = {}
            _W3C.inject(carrier)
            try:
                answer = await add(msgspec.json.encode(carrier).decode())
            except BaseException as error:
                # The first line: PostgreSQL's detail, in the next ones, quotes the row.
                _fail(span, type(error).__qualname__, cover_passwords(str(error).partition("\n")[0]))
                raise
            if isinstance(answer, Enqueued):
                span.set_attribute("messaging.message.id", str(answer.id))
            return answer

    async def run(self, claimed: ClaimedJob, policy: RetryPolicy, call: Callable[[], Awaitable[object]]) -> object:
        """Run an attempt inside a span if its enqueue was recorded. What it raises is told as its record will be."""
        enqueued = _context_of(claimed.headers)
        if enqueued is None:
            return await call()
        attributes = _attributes("process", "run", {claimed.kind}, {claimed.queue})
        attributes |= {"messaging.message.id": str(claimed.id), "jobq.attempt": claimed.attempt}
        with self._tracer.start_as_current_span(
            _name("run", {claimed.kind}),
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(enqueued)],
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await call()
            except BaseException as error:
                failure = tell_failure(claimed, error, policy)
                _fail(span, failure.type, failure.message)
                raise


def _name(operation: str, kinds: set[str]) -> str:
    """Return the name of a span. The kind says more than the queue does, and there are few of either."""
    return " ".join([operation, *kinds]) if len(kinds) == 1 else operation


def _attributes(of_type: str, operation: str, kinds: set[str], queues: set[str]) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "jobq",
        "messaging.operation.type": of_type,
        "messaging.operation.name": operation,
    }
    if len(queues) == 1:
        attributes["messaging.destination.name"] = min(queues)
    if len(kinds) == 1:
        attributes["jobq.kind"] = min(kinds)
    return attributes


def _context_of(headers: str | None) -> SpanContext | None:
    """Return the span that a job's *headers* name, or None unless it was recorded. They may hold anything."""
    try:
        carrier = msgspec.json.decode(headers or "{}", type=dict[str, object])
    except msgspec.DecodeError:
        return None
    context = _W3C.extract({name: value for name, value in carrier.items() if isinstance(value, str)}, Context())
    found = get_current_span(context).get_span_context()
    return found if found.is_valid and found.trace_flags.sampled else None


def _fail(span: Span, error_type: str, message: str) -> None:
    span.set_status(StatusCode.ERROR, message)
    span.set_attribute("error.type", error_type)
    span.add_event("exception", {"exception.type": error_type, "exception.message": message})
