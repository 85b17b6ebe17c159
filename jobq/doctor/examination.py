"""All rules, on all facts: the list of what `jobq doctor` looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobq.db.facts import Facts
from jobq.doctor.finding import Finding, Severity, Surroundings
from jobq.doctor.recurring import check_faults, check_forsaken, check_missed, check_pauses
from jobq.doctor.schema import check_history, check_indexes, check_owners, check_version
from jobq.doctor.server import (
    check_blockers,
    check_clock,
    check_connections,
    check_durability,
    check_notifications,
    check_pooler,
)
from jobq.doctor.vacuum import check_autovacuum, check_dead_rows, check_holders, check_slots
from jobq.doctor.work import check_dead_letters, check_duplicates, check_lease, check_timeouts, check_unserved


def examine(facts: Facts, surroundings: Surroundings, wanted_indexes: Mapping[str, str]) -> list[Finding]:
    """Return what is found, the worst first, and else in the order of the rules."""
    findings = [*_findings(facts, surroundings, wanted_indexes)]
    return sorted(findings, key=lambda one: one.severity is not Severity.HURTS)


def _findings(facts: Facts, surroundings: Surroundings, wanted_indexes: Mapping[str, str]) -> Iterator[Finding]:
    yield from check_version(facts)
    yield from check_blockers(facts.blockers)
    yield from check_durability(facts.server)
    yield from check_connections(facts.server)
    yield from check_notifications(facts.server)
    yield from check_clock(facts.clock_ahead_s)
    yield from check_pooler(facts, surroundings)
    yield from check_holders(facts.holders)
    yield from check_slots(facts.slots)
    yield from check_autovacuum(facts.server, facts.tables)
    yield from check_dead_rows(facts.tables)
    yield from check_owners(facts.tables)
    if facts.version >= facts.needed:
        yield from check_indexes(facts.indexes, wanted_indexes)
    if facts.instance is not None:
        yield from check_history(facts.instance)
        yield from check_dead_letters(facts.instance)
        yield from check_lease(facts.instance, facts.server.replicas, surroundings)
    if facts.standing is not None:
        yield from check_unserved(facts.standing)
        yield from check_timeouts(facts.standing, surroundings.kinds)
    if facts.entries is not None:
        yield from check_missed(facts.entries)
        yield from check_faults(facts.entries)
        yield from check_forsaken(facts.entries)
        yield from check_pauses(facts.entries)
    yield from check_duplicates(surroundings.kinds)
