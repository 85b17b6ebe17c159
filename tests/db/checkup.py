"""A server to be examined, and what is found on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobq.db.blueprint import wanted_indexes
from jobq.db.facts import FactReports, Facts
from jobq.doctor.examination import examine
from jobq.doctor.finding import Finding, KindRules, Surroundings
from jobq.embedded import temporary
from tests.db.rows import Rows


@contextmanager
def durable_server() -> Iterator[str]:
    """Give the DSN of a server that is durable, and that a test may change and finds nobody else on."""
    pgbin = os.environ.get("JOBQ_TEST_PGBIN")
    settings = {"max_prepared_transactions": "2"}
    with temporary(settings=settings, binaries=Path(pgbin) if pgbin else None) as server:
        yield server.dsn


async def look(rows: Rows) -> Facts:
    """Gather the facts."""
    return await FactReports(rows.store.schema).gather(rows.conn)


async def found(
    rows: Rows, *, hosts: int = 1, kinds: Sequence[KindRules] = (), wall_clock: Callable[[], float] = time.time
) -> list[Finding]:
    """Do what the command does."""
    facts = await FactReports(rows.store.schema).gather(rows.conn, wall_clock=wall_clock)
    return examine(facts, Surroundings(hosts=hosts, kinds=kinds), wanted_indexes(rows.store.schema))


async def only(rows: Rows, code: str) -> Finding:
    """Return the one finding that there is, which bears this *code*."""
    findings = await found(rows)
    assert [one.code for one in findings] == [code], findings
    return findings[0]
