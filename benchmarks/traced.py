"""The application of `sleepers`, traced: each span that somebody records is made in full, batched, and thrown away."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.sleepers import noop, queue
from jobq.telemetry.tracing import Tracing

__all__ = ["noop", "queue"]


class ToNowhere(SpanExporter):
    """What is measured is the making of spans, not somebody's network."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Take them."""
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ToNowhere()))
queue.tracing = Tracing(provider)
