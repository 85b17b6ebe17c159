"""`jobq stats`: how long the oldest ready job of each queue has been waiting, what there is, and how the kinds do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from jobq.cli.database import Dsn, Embedded, Instance, Schema, on_connection
from jobq.cli.output import AsJson, print_json, print_table, terminal_width
from jobq.db.overview import Count, KindStats, Overview, QueueStats, RunningKind, Standing
from jobq.settings import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = "Example: jobq stats"

FIRST_FEW = 5
"""Queues and kinds without a worker that are named in a remark."""

NOTHING = "-"
"""Stands where there is no number to show."""

WIDE_ENOUGH = 120
"""Columns of a terminal in which the names need not be cut."""


def stats(
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Show how the queues and the kinds stand.

    The queue that lags most comes first: OLDEST READY says for how long its oldest ready job could have been running.
    Counts are exact up to 10,000. Of what runs, the kind whose oldest job has run for longest comes first. The kinds
    show what became of their attempts in the last hour, written by the workers every half minute; FAILED is the share
    of attempts that were retried or died, P50 and P95 how long they took, PROPOSED a time-out that fits that.
    """
    standing = on_connection(Instance(dsn, schema, embedded), Overview(schema).look)
    if as_json:
        print_json(msgspec.to_builtins(standing))
        return
    if standing.queues:
        print_table(_queues(standing.queues, narrow=_is_narrow()))
    for line in _remarks(standing):
        typer.echo(line)
    if standing.running:
        typer.echo("\nrunning now")
        print_table(_running(standing.running, narrow=_is_narrow()))
    if standing.kinds:
        typer.echo(f"\nthe last {spell(standing.window_s)}")
        print_table(_kinds(standing.kinds, narrow=_is_narrow()))


def spell(seconds: float) -> str:
    """Return a time in its two largest units: `45 s`, `3 min 12 s`, `5 h 2 min`, `3 d 4 h`."""
    rest = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, length)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part) or "0 s"


def spell_ms(milliseconds: float | None) -> str:
    """Return how long attempts took: `120 ms`, `1.2 s`, `3 min 12 s`."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    return spell(milliseconds / 1000)


def show_count(count: Count) -> str:
    """Return a count, and whether it is more: `312`, `10,000+`."""
    return f"{count.count:,}+" if count.capped else f"{count.count:,}"


def _queues(queues: Sequence[QueueStats], *, narrow: bool) -> Table:
    table = _table()
    table.add_column("QUEUE", max_width=16 if narrow else None)
    table.add_column("OLDEST READY", justify="right", no_wrap=True, style="bold")
    for name in ("READY", "SCHEDULED", "RUNNING", "DEAD", "WORKERS"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in queues:
        counts = (one.ready, one.scheduled, one.running, one.dead)
        oldest = NOTHING if one.oldest_ready_s is None else spell(one.oldest_ready_s)
        _add(table, [one.queue, oldest, *map(show_count, counts), f"{one.workers:,}"])
    return table


def _running(kinds: Sequence[RunningKind], *, narrow: bool) -> Table:
    table = _table()
    table.add_column("KIND", max_width=28 if narrow else None)
    table.add_column("QUEUE", max_width=16 if narrow else None)
    for name in ("RUNNING", "OLDEST"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in kinds:
        _add(table, [one.kind, one.queue, f"{one.running:,}", spell(one.oldest_s)])
    return table


def _kinds(kinds: Sequence[KindStats], *, narrow: bool) -> Table:
    table = _table()
    table.add_column("KIND", max_width=14 if narrow else None)
    table.add_column("QUEUE", max_width=8 if narrow else None)
    for name in ("DONE", "RETRIED", "DEAD", "FAILED", "P50", "P95", "PROPOSED"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in kinds:
        counts = (f"{count:,}" for count in (one.done, one.retried, one.dead))
        failed = NOTHING if one.failure_rate is None else f"{one.failure_rate:.1%}"
        proposed = NOTHING if one.proposed_timeout_s is None else spell(one.proposed_timeout_s)
        _add(table, [one.kind, one.queue, *counts, failed, spell_ms(one.p50_ms), spell_ms(one.p95_ms), proposed])
    return table


def _remarks(standing: Standing) -> Iterator[str]:
    """Yield what the numbers alone might let a reader miss."""
    if not standing.queues:
        yield "No queue has a job or a dead letter."
    alone = {one.queue for one in standing.queues if one.ready.count and not one.workers}
    if alone:
        yield f"No live worker serves these queues, whose jobs are ready: {_first_few(sorted(alone))}."
    if unknown := [f"{one.kind} in {one.queue}" for one in standing.unserved if one.queue not in alone]:
        yield f"No live worker has a handler for these kinds, whose jobs are ready: {_first_few(unknown)}."
    yield "1 worker is alive." if standing.workers == 1 else f"{standing.workers:,} workers are alive."


def _first_few(names: Sequence[str]) -> str:
    more = f" and {len(names) - FIRST_FEW} more" if len(names) > FIRST_FEW else ""
    return ", ".join(names[:FIRST_FEW]) + more


def _is_narrow() -> bool:
    width = terminal_width()
    return width is not None and width < WIDE_ENOUGH


def _table() -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _add(table: Table, cells: Iterable[str]) -> None:
    from rich.text import Text

    table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
