"""Rules about the server: does it keep what it has committed, has it room, and is there something in between?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobq.db.facts import Blocker, Facts, ServerFacts
from jobq.doctor.finding import Finding, Severity, Surroundings, first_few

FEW_CONNECTIONS = 20
"""Room for one more worker: it takes five, and its handlers' pool up to ten."""

LAST_CONNECTIONS = 5

BLOCKED_S = 1.0
"""Shorter waits are everyday."""

MUCH_NOTIFICATION_QUEUE = 0.1
FULL_NOTIFICATION_QUEUE = 0.5
"""From here on an enqueue wakes nobody (migration 0003), so that its commit cannot fail."""

CLOCK_S = 2.0


def check_durability(server: ServerFacts) -> Iterator[Finding]:
    """A commit that a crash may undo is no commit: a job would be lost after its enqueue was answered."""
    for name, value, lost in (
        ("fsync", server.fsync, "the whole database may be damaged"),
        ("full_page_writes", server.full_page_writes, "pages may be torn"),
        ("synchronous_commit", server.synchronous_commit, "the last commits may be gone, enqueues among them"),
    ):
        if value == "off":
            yield Finding(
                severity=Severity.HURTS,
                code="durability",
                title=f"{name} is off",
                detail=f"after a crash of the server {lost}",
                remedy=f"switch {name} on, for the server, the database and the role",
            )


def check_connections(server: ServerFacts) -> Iterator[Finding]:
    """Who finds no connection can neither enqueue nor claim."""
    if server.connections_left < FEW_CONNECTIONS:
        yield Finding(
            severity=Severity.HURTS if server.connections_left < LAST_CONNECTIONS else Severity.LOOK,
            code="connections",
            title=f"connections left for ordinary roles: {server.connections_left}",
            detail="a worker takes five, and the pool of its handlers up to ten",
            remedy="raise max_connections or the database's limit, close idle sessions, or put PgBouncer in front",
        )


def check_blockers(blockers: Sequence[Blocker]) -> Iterator[Finding]:
    """Who holds a lock and does not go on stops everybody behind it."""
    for one in blockers:
        if one.waited_s < BLOCKED_S and not (one.tables and (one.open_s is None or one.open_s >= BLOCKED_S)):
            continue
        whose = f" ({one.application})" if one.application else ""
        since = "" if one.open_s is None else f", and its transaction has been open for {one.open_s:,.0f} s"
        locked = f"has locked {first_few(one.tables)}" if one.tables else "holds a lock that others wait for"
        yield Finding(
            severity=Severity.HURTS,
            code="blocked",
            title=f"session {one.pid} of {one.owner}{whose} {locked}",
            detail=f"it is {one.state}{since}; what waits for it neither takes jobs nor finishes them",
            remedy=f"end it: select pg_terminate_backend({one.pid}); what it has not committed is undone",
        )


def check_notifications(server: ServerFacts) -> Iterator[Finding]:
    """The queue of notifications is the whole server's, and a commit that finds it full fails."""
    used = server.notification_queue
    if used > MUCH_NOTIFICATION_QUEUE:
        yield Finding(
            severity=Severity.HURTS if used >= FULL_NOTIFICATION_QUEUE else Severity.LOOK,
            code="notifications",
            title=f"the notification queue of the server is {used:.0%} full",
            detail="a session that listens stays in one transaction, and nothing behind it can be removed; from"
            f" {FULL_NOTIFICATION_QUEUE:.0%} on jobq wakes nobody, and a commit of others that finds it full fails",
            remedy="end the session that listens and is 'idle in transaction' in pg_stat_activity",
        )


def check_clock(ahead_s: float) -> Iterator[Finding]:
    """No decision depends on this machine's clock, but who compares its log with the database is misled."""
    if abs(ahead_s) > CLOCK_S:
        where = "ahead of" if ahead_s > 0 else "behind"
        yield Finding(
            severity=Severity.LOOK,
            code="clock",
            title=f"the clock of this machine is {abs(ahead_s):,.0f} s {where} the database's",
            detail="leases and run_at go by the database's clock alone, but logs and times computed here do not",
            remedy="synchronise both by NTP",
        )


def check_pooler(facts: Facts, surroundings: Surroundings) -> Iterator[Finding]:
    """Between two transactions a pooler may change the server connection, and what was left there."""
    if facts.told_pid == facts.server.pid or surroundings.hears is not False:
        return
    yield Finding(
        severity=Severity.LOOK,
        code="pooler-listen",
        title="notifications do not come through the pooler",
        detail="it is in transaction mode, so no worker hears what it listens for; it looks every 0.25 s instead",
        remedy="set listen_dsn (JOBQ_LISTEN_DSN) to a DSN of the same database that goes around the pooler",
    )
    if surroundings.prepared_statements:
        yield Finding(
            severity=Severity.LOOK,
            code="pooler-prepared",
            title="statements are prepared through a pooler in transaction mode",
            detail="the next transaction may have another server connection, which does not know them, unless the"
            " pooler keeps account of them (max_prepared_statements of PgBouncer)",
            remedy="switch prepared_statements off (JOBQ_PREPARED_STATEMENTS=off)",
        )
