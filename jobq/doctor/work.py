"""Rules about the work itself: what nobody takes, what nobody looks at, what takes too long, and who may lose it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobq.db.facts import InstanceFacts
from jobq.db.overview import COUNT_LIMIT, KindStats, Standing
from jobq.doctor.finding import Finding, KindRules, Severity, Surroundings, counted, first_few

UNSEEN_S = 86_400.0
NEAR = 0.8
"""Of its time-out: a slow day takes it over."""

FAILOVER_S = 30.0
"""What Patroni takes by default, its time to live."""


def check_unserved(standing: Standing) -> Iterator[Finding]:
    """What no worker takes waits for ever."""
    if standing.unserved:
        yield Finding(
            severity=Severity.HURTS,
            code="unserved",
            title="no live worker takes these kinds, whose jobs are ready: "
            + first_few(f"{one.kind} in {one.queue}" for one in standing.unserved),
            detail="a kind that was renamed, a queue that no worker serves, or workers of an older release",
            remedy="start a worker that serves the queue and has a handler for the kind; see `jobq explain ID`",
        )


def check_dead_letters(instance: InstanceFacts) -> Iterator[Finding]:
    """A dead letter waits for a person."""
    if instance.oldest_dead_s is not None and instance.oldest_dead_s > UNSEEN_S:
        many = instance.dead_letters > COUNT_LIMIT
        letters = f"more than {COUNT_LIMIT:,} dead letters" if many else counted(instance.dead_letters, "dead letter")
        yield Finding(
            severity=Severity.LOOK,
            code="dead-letters",
            title=f"{letters}, the oldest {counted(int(instance.oldest_dead_s // 86_400), 'day')} old",
            detail="nobody has decided about them, and they are never deleted by themselves",
            remedy="jobq dead list; then redrive or delete them",
        )


def check_timeouts(standing: Standing, kinds: Sequence[KindRules]) -> Iterator[Finding]:
    """An attempt that is cut off at its time-out has done its work for nothing."""
    rules = {one.kind: one for one in kinds}
    for stats in standing.kinds:
        if (rule := rules.get(stats.kind)) is None or stats.p95_ms is None or stats.p50_ms is None:
            continue
        near_ms = NEAR * rule.timeout_s * 1000
        if stats.p95_ms < near_ms:
            continue
        yield Finding(
            severity=Severity.HURTS if stats.p50_ms >= near_ms else Severity.LOOK,
            code="slow-kind",
            title=f"{stats.kind} in {stats.queue} comes near its time-out of {rule.timeout_s:g} s",
            detail=f"in the last hour half of its attempts took up to {stats.p50_ms / 1000:,.1f} s, and 95 % up to"
            f" {stats.p95_ms / 1000:,.1f} s",
            remedy=f"find what it waits for, split it, or raise timeout= in its @queue.task{_proposal(stats, rule)}",
        )


def _proposal(stats: KindStats, rule: KindRules) -> str:
    """Return to what its time-out may be raised, if enough attempts are known and that is no less than it is."""
    proposed_s = stats.proposed_timeout_s
    if proposed_s is None or proposed_s <= rule.timeout_s:
        return ""
    return f" to {proposed_s:g}, about three times the slowest in a thousand"


def check_duplicates(kinds: Sequence[KindRules]) -> Iterator[Finding]:
    """Every job runs twice one day."""
    if missing := [one.kind for one in kinds if one.on_duplicate is None]:
        yield Finding(
            severity=Severity.LOOK,
            code="on-duplicate",
            title=f"these kinds do not say what a second run does: {first_few(missing)}",
            detail="a worker may die after the effect and before it is recorded, and then the job runs again",
            remedy="add on_duplicate='...' to their @queue.task",
        )


def check_lease(instance: InstanceFacts, replicas: int, surroundings: Surroundings) -> Iterator[Finding]:
    """A worker that cannot renew its lease cancels what runs: where there may be a failover, it should outlast it."""
    if replicas == 0 and surroundings.hosts == 1:
        return
    if instance.lease_rest_s is not None and instance.lease_rest_s < FAILOVER_S:
        yield Finding(
            severity=Severity.LOOK,
            code="lease",
            title=f"the leases of the workers end in {instance.lease_rest_s:.0f} s at most, before a failover may",
            detail=f"Patroni takes {FAILOVER_S:.0f} s by default; a worker whose lease ends cancels what runs, and all"
            " that runs again",
            remedy="jobq run --worker-lease 60s, or what your failover takes and some seconds more",
        )
