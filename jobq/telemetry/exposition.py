"""The text of `/metrics`: what `metrics.py` has counted and what `readings.py` holds, in Prometheus' words.

Every name, unit and label of jobq's metrics stands here, and in the table of docs/telemetry.md. What the application
keeps in the default registry of prometheus-client comes after it. Needs the extra `metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import REGISTRY, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from jobq.core.counts import EndCounts
from jobq.core.histogram import upper_bound_ms
from jobq.telemetry.metrics import Metrics, Times
from jobq.telemetry.readings import OverviewNow, QueueNow, WorkerNow

ENTRY_STATES = ("well", "held", "missed", "late", "overdue", "faulty", "paused")
"""How a recurring entry may stand: the states of the view `v1_recurring`."""

DURATION_BUCKETS = range(1, 90, 4)
"""Of the buckets of `core/histogram.py` every fourth, 1 ms and its doublings up to 70 minutes: 23 series a kind."""


def render(metrics: Metrics, worker: WorkerNow, overview: OverviewNow | None) -> bytes:
    """Return the text of one scrape. Asks nobody: *overview* is the last reading, None before the first."""
    ours = CollectorRegistry(auto_describe=False)
    ours.register(_Scrape(metrics, worker, overview))
    return generate_latest(ours) + generate_latest(REGISTRY)


class _Scrape(Collector):
    def __init__(self, metrics: Metrics, worker: WorkerNow, overview: OverviewNow | None) -> None:
        self._metrics = metrics
        self._worker = worker
        self._overview = overview

    def collect(self) -> Iterator[Metric]:
        yield from _counted(self._metrics)
        yield from _worker(self._worker, self._metrics)
        yield from _overview(self._overview, self._metrics)


def _counted(metrics: Metrics) -> Iterator[Metric]:
    outcomes = [
        ((kind, outcome), getattr(counts, outcome))
        for kind, counts in metrics.ends.items()
        for outcome in ("done", "retried", "dead", "released")
    ]
    yield _counter("jobq_attempts", "Attempts whose outcome is written.", ("kind", "outcome"), outcomes)
    yield _histogram(
        "jobq_attempt_duration_seconds",
        "How long handlers ran.",
        "kind",
        {kind: _durations(counts) for kind, counts in metrics.ends.items()},
    )
    yield _counter("jobq_lost_leases", "Attempts that no longer owned their job.", ("kind",), _by_one(metrics.lost))
    slow = _by_one(metrics.slow)
    yield _counter("jobq_slow_attempts", "Attempts that ran for far longer than usual.", ("kind",), slow)
    yield _counter("jobq_claimed_jobs", "Jobs that claims have brought.", ("queue",), _by_one(metrics.claimed))
    yield _counter(
        "jobq_wakeups", "Why claim loops looked for work.", ("queue", "source"), list(metrics.wakeups.items())
    )
    yield _histogram(
        "jobq_claim_duration_seconds",
        "Round trips of claims.",
        "queue",
        {queue: _times(times) for queue, times in metrics.claim_times.items()},
    )
    yield _histogram(
        "jobq_settle_duration_seconds", "Round trips that write outcomes.", None, {"": _times(metrics.settle_times)}
    )
    yield _histogram(
        "jobq_event_loop_lag_seconds", "How late the event loop came to a timer.", None, {"": _times(metrics.lags)}
    )
    yield _counter("jobq_events", "Events of the log, shown or not.", ("event",), _by_one(metrics.events))


def _worker(now: WorkerNow, metrics: Metrics) -> Iterator[Metric]:
    for name, what, field in (
        ("jobq_slots", "How many attempts may run at once.", "slots"),
        ("jobq_slots_busy", "How many attempts run.", "busy"),
    ):
        by_executor = [((one.queue, one.executor), getattr(one, field)) for one in now.slots]
        yield _gauge(name, what, ("queue", "executor"), by_executor)
    oldest = [((kind,), now.oldest_running_s.get(kind, 0.0)) for kind in metrics.kinds]
    yield _gauge("jobq_oldest_running_seconds", "How long the oldest attempt has run.", ("kind",), oldest)
    for name, what, value in (
        ("jobq_unsettled_outcomes", "Outcomes that are not written yet.", now.unsettled),
        ("jobq_working", "1 if every loop of the worker has succeeded lately, as /readyz says.", now.is_working),
        ("jobq_listener_up", "1 if notifications come through.", now.is_listening),
        ("jobq_event_loop_blocked_seconds", "How long the event loop has been overdue.", now.loop_lag_s),
    ):
        yield _gauge(name, what, (), [((), value)])


def _overview(now: OverviewNow | None, metrics: Metrics) -> Iterator[Metric]:
    queues: Sequence[QueueNow] = () if now is None else now.queues
    states = [
        ((one.queue, state), getattr(one, state)) for one in queues for state in ("ready", "scheduled", "running")
    ]
    yield _gauge("jobq_jobs", "Live jobs, counted up to 10,000 a queue and state.", ("queue", "state"), states)
    for name, what, field in (
        ("jobq_oldest_ready_age_seconds", "How long the oldest ready job has been ready.", "oldest_ready_s"),
        ("jobq_dead_letters", "Dead letters, counted up to 10,000 a queue.", "dead"),
        ("jobq_queue_workers", "Live workers that serve the queue.", "workers"),
        ("jobq_unserved_kinds", "Kinds that are ready and that no live worker takes.", "unserved_kinds"),
    ):
        yield _gauge(name, what, ("queue",), [((one.queue,), getattr(one, field)) for one in queues])
    entries = {} if now is None else {state: now.entries.get(state, 0) for state in ENTRY_STATES}
    yield _gauge("jobq_recurring_entries", "Recurring entries, by how they stand.", ("state",), _by_one(entries))
    for name, what, field in (
        ("jobq_workers", "Live workers.", "workers"),
        ("jobq_oldest_dead_letter_age_seconds", "Age of the oldest dead letter.", "oldest_dead_s"),
        ("jobq_overview_duration_seconds", "How long the last reading of the whole queue took.", "took_s"),
        ("jobq_overview_age_seconds", "How long ago the whole queue was read.", "age_s"),
    ):
        yield _gauge(name, what, (), [] if now is None else [((), getattr(now, field))])


# -- families of prometheus-client ---------------------------------------------------------------------------


Samples = Iterable[tuple[Sequence[str], float]]


def _by_one(counts: Mapping[str, float]) -> Samples:
    return [((label,), value) for label, value in counts.items()]


def _counter(name: str, what: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _gauge(name: str, what: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, what, labels=labels)
    for values, value in samples:
        family.add_metric(values, float(value))
    return family


Buckets = tuple[list[tuple[str, float]], float]
"""Cumulative counts by bound, and the sum of what was counted."""


def _histogram(name: str, what: str, label: str | None, by_label: Mapping[str, Buckets]) -> Metric:
    family = HistogramMetricFamily(name, what, labels=[] if label is None else [label])
    for value, (buckets, total) in by_label.items():
        family.add_metric([] if label is None else [value], buckets=buckets, sum_value=total)
    return family


def _times(times: Times) -> Buckets:
    bounds = [*map(str, times.bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(times.counts)), strict=True)), times.sum_s


def _durations(counts: EndCounts) -> Buckets:
    found = counts.durations.copy()  # in one step: the event loop counts on
    cumulative = [
        (str(upper_bound_ms(last) / 1000), float(sum(n for bucket, n in found.items() if bucket <= last)))
        for last in DURATION_BUCKETS
    ]
    return [*cumulative, ("+Inf", float(sum(found.values())))], counts.run_ms / 1000
