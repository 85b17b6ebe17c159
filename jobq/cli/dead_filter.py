"""Which dead letters a command means: ids, filters, or explicitly all of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from jobq.cli.durations import duration
from jobq.cli.usage import UsageError
from jobq.core.job import JobId
from jobq.db.reports import DeadFilter

Id = Annotated[
    int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="The id of a dead letter.", show_default=False)
]
Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="Ids of dead letters.", show_default=False),
]
Kind = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this kind.")]
InQueue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only of this queue.")]
Fingerprint = Annotated[str | None, typer.Option(metavar="HEX", help="Only with this error: `list` shows its number.")]
OlderThan = Annotated[
    timedelta | None,
    typer.Option(parser=duration, metavar="DURATION", help="Only dead for 30s, 15m, 24h, 7d or longer."),
]
YoungerThan = Annotated[
    timedelta | None,
    typer.Option(parser=duration, metavar="DURATION", help="Only dead for less than 30s, 15m, ..."),
]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


def read_filter(
    ids: list[int] | None,
    kind: str | None,
    queue: str | None,
    fingerprint: str | None,
    older_than: timedelta | None,
    younger_than: timedelta | None,
) -> DeadFilter:
    return DeadFilter(
        ids=tuple(JobId(one) for one in dict.fromkeys(ids)) if ids else None,
        kind=kind,
        queue=queue,
        fingerprint=fingerprint,
        older_than_s=None if older_than is None else older_than.total_seconds(),
        younger_than_s=None if younger_than is None else younger_than.total_seconds(),
    )


def chosen(wanted: DeadFilter, everything: bool) -> DeadFilter:
    """Return what is meant, and refuse to mean all of them unless that is said, and nothing else."""
    if everything and not wanted.is_empty:
        raise UsageError("--all and ids or filters contradict each other: leave one of them out.")
    if everything:
        return DeadFilter(older_than_s=0.0)
    if wanted.is_empty:
        raise UsageError(
            "Which dead letters? Give ids, or --kind, --queue, --fingerprint, --older-than, --younger-than, or --all."
        )
    return wanted
