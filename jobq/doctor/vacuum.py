"""Rules about vacuum: who holds it back, and where it does not come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobq.db.facts import Holder, ServerFacts, Slot, TableFacts
from jobq.doctor.finding import Finding, Severity, first_few

LONG_S = 300.0
VERY_LONG_S = 3600.0
MANY_TRANSACTIONS = 1_000_000
"""Where an age in time is not known: some minutes of a busy queue."""

MUCH_LOG = 2**30
DEAD_ROWS = 100_000
VACUUM_S = 600.0
"""Autovacuum looks once a minute; where rows are dead and it has not been for so long, something is in its way."""

WHY = "what died since then cannot be removed, so tables and indexes grow"


def check_holders(holders: Sequence[Holder]) -> Iterator[Finding]:
    """What died after the oldest snapshot stays."""
    for holder in holders:
        by_time = holder.age_s is not None and holder.age_s >= LONG_S
        by_count = holder.age_s is None and holder.transactions >= MANY_TRANSACTIONS
        if not by_time and not by_count:
            continue
        since = f"{holder.transactions:,} transactions back" if holder.age_s is None else f"for {holder.age_s:,.0f} s"
        whose = f" ({holder.application})" if holder.application else ""
        yield Finding(
            severity=Severity.HURTS if (holder.age_s or 0.0) >= VERY_LONG_S else Severity.LOOK,
            code="held-back",
            title=f"{holder.what} {holder.name} of {holder.owner}{whose} holds back vacuum {since}",
            detail=f"it is {holder.state}; {WHY}",
            remedy=_remedy(holder),
        )


def _remedy(holder: Holder) -> str:
    match holder.what:
        case "session":
            return (
                f"end it: select pg_terminate_backend({holder.name}); and set idle_in_transaction_session_timeout for"
                " its role"
            )
        case "prepared transaction":
            return f"end it, in this database: commit prepared or rollback prepared '{holder.name}'"
        case _:
            return "end its long queries there, or set hot_standby_feedback = off on it"


def check_slots(slots: Sequence[Slot]) -> Iterator[Finding]:
    """A slot that nobody reads keeps the log for ever, and with it perhaps the dead rows."""
    for slot in slots:
        held = slot.held_transactions or 0
        if slot.active and held < MANY_TRANSACTIONS:
            continue
        state = "has a reader that lags" if slot.active else "has no reader"
        keeps = f"it keeps {slot.kept_bytes / 2**20:,.0f} MB of the log"
        yield Finding(
            severity=Severity.HURTS if slot.kept_bytes >= MUCH_LOG or held >= MANY_TRANSACTIONS else Severity.LOOK,
            code="slot",
            title=f"replication slot {slot.name} {state}",
            detail=keeps
            + (f" and holds back vacuum, {held:,} transactions by now" if held else "")
            + "; the disk fills until somebody reads it",
            remedy=f"start its reader, or drop it: select pg_drop_replication_slot('{slot.name}');",
        )


def check_autovacuum(server: ServerFacts, tables: Sequence[TableFacts]) -> Iterator[Finding]:
    """Each job leaves dead rows behind: without vacuum the table of jobs grows with every job ever run."""
    if server.autovacuum == "off":
        yield Finding(
            severity=Severity.HURTS,
            code="autovacuum",
            title="autovacuum is off",
            detail="every job leaves dead rows behind, and nothing removes them",
            remedy="switch autovacuum on, for the server",
        )
    if off := [table.name for table in tables if not table.autovacuum]:
        yield Finding(
            severity=Severity.HURTS,
            code="autovacuum",
            title=f"autovacuum is off for {first_few(off)}",
            detail="every job leaves dead rows behind, and nothing removes them",
            remedy="reset the storage parameter autovacuum_enabled of these tables",
        )


def check_dead_rows(tables: Sequence[TableFacts]) -> Iterator[Finding]:
    """More dead rows than live ones, and no vacuum that came."""
    for table in tables:
        if table.dead < max(DEAD_ROWS, table.live) or (table.vacuumed_s or VACUUM_S) < VACUUM_S:
            continue
        last = "never" if table.vacuumed_s is None else f"{table.vacuumed_s:,.0f} s ago"
        yield Finding(
            severity=Severity.LOOK,
            code="dead-rows",
            title=f"{table.name} has {table.dead:,} dead rows and {table.live:,} live ones",
            detail=f"the last vacuum ended {last}: claims walk the dead entries of the index",
            remedy="see what holds vacuum back and whether autovacuum is on; then: vacuum (verbose) of this table",
        )
