"""What is stated about a worker: the arguments of `jobq run` and `jobq systemd`, and what follows from them."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from jobq.cli.durations import duration_or_seconds
from jobq.cli.logs import LogFormat, LogLevel
from jobq.cli.origins import place_of
from jobq.errors import ConfigurationError
from jobq.settings import DEFAULT_SLOTS, WorkerSettings
from jobq.worker.probes import Address, parse_address

_CONCURRENCY = re.compile(r"(?:(?P<queue>.+)=)?(?P<slots>[0-9]{1,9})")


def read_concurrency(texts: list[str] | None) -> tuple[dict[str, int], int | None]:
    """Return the slots of single queues, and those of all others if stated. Raises `typer.BadParameter`."""
    slots: dict[str, int] = {}
    default_slots: int | None = None
    for text in texts or []:
        match = _CONCURRENCY.fullmatch(text)
        if match is None:
            raise typer.BadParameter(f"{text!r} is neither QUEUE=N nor N.")
        if match["queue"] is None:
            default_slots = int(match["slots"])
        else:
            slots[match["queue"]] = int(match["slots"])
    return slots, default_slots


def times_of(
    *,
    grace: timedelta | None,
    cancel_grace: timedelta | None,
    start_limit: timedelta | None,
    worker_lease: timedelta | None,
) -> dict[str, float]:
    """Return the times of `WorkerSettings` that are stated, or that follow from those."""
    stated = {"grace_s": grace, "cancel_grace_s": cancel_grace, "start_limit_s": start_limit}
    times = {name: span.total_seconds() for name, span in stated.items() if span is not None}
    if worker_lease is not None:
        lease_s = worker_lease.total_seconds()
        defaults = WorkerSettings()
        times["worker_lease_s"] = lease_s
        # Four beats a lease, as by default; one that gets no answer ends soon enough for another, on a new connection.
        times["beat_s"] = lease_s / 4
        times["beat_deadline_s"] = min(defaults.beat_deadline_s, lease_s / 4)
        # Whoever raises the lease above a failover means the jobs, whose own lease must not lapse before.
        times["job_lease_s"] = max(defaults.job_lease_s, 3 * lease_s)
    return times


def _possible(ctx: typer.Context, param: typer.CallbackParam, texts: list[str] | None) -> list[str] | None:
    """Refuse what a worker would refuse, where it is known who states it."""
    slots, default_slots = read_concurrency(texts)
    try:
        WorkerSettings(slots=slots, default_slots=DEFAULT_SLOTS if default_slots is None else default_slots)
    except ConfigurationError as error:
        raise ConfigurationError(f"{place_of(ctx, param)}: {error}") from None
    return texts


def _not_nothing(ctx: typer.Context, param: typer.CallbackParam, lease: timedelta | None) -> timedelta | None:
    if lease is not None and not lease:
        raise ConfigurationError(f"{place_of(ctx, param)}: a lease of 0 s lapses before it is there; 20s is usual")
    return lease


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ConfigurationError as error:
        raise typer.BadParameter(f"{error}.") from None


_APP_QUEUE = typer.Argument(
    metavar="APP:QUEUE",
    envvar="JOBQ_APP",
    show_envvar=False,
    help="Where your queue is: module:attribute, or module:function() for a function that makes it.",
    show_default=False,
)
AppQueue = Annotated[str, _APP_QUEUE]
MaybeAppQueue = Annotated[str | None, _APP_QUEUE]
Concurrency = Annotated[
    list[str] | None,
    typer.Option(
        metavar="QUEUE=N",
        envvar="JOBQ_CONCURRENCY",
        show_envvar=False,
        callback=_possible,
        help=f"How many jobs of a queue run at once; N alone: of every other queue ({DEFAULT_SLOTS}). Repeatable.",
    ),
]
Grace = Annotated[
    timedelta | None,
    typer.Option(
        parser=duration_or_seconds,
        metavar="DURATION",
        envvar="JOBQ_GRACE",
        show_envvar=False,
        help="How long running jobs may go on after a stop (25s).",
    ),
]
CancelGrace = Annotated[
    timedelta | None,
    typer.Option(
        parser=duration_or_seconds,
        metavar="DURATION",
        envvar="JOBQ_CANCEL_GRACE",
        show_envvar=False,
        help="How long their clean-up may take after that (5s).",
    ),
]
StartLimit = Annotated[
    timedelta | None,
    typer.Option(
        parser=duration_or_seconds,
        metavar="DURATION",
        envvar="JOBQ_START_LIMIT",
        show_envvar=False,
        help="How long to wait for the database at the start (60s).",
    ),
]
WorkerLease = Annotated[
    timedelta | None,
    typer.Option(
        parser=duration_or_seconds,
        callback=_not_nothing,
        metavar="DURATION",
        envvar="JOBQ_WORKER_LEASE",
        show_envvar=False,
        help="How long a silent worker keeps its jobs (20s): longer than a failover, or that cancels what runs.",
    ),
]
Http = Annotated[
    Address | None,
    typer.Option(
        parser=_address,
        metavar="HOST:PORT",
        envvar="JOBQ_HTTP",
        show_envvar=False,
        help="Answer /healthz, /readyz and /metrics there; port 0 takes a free one. Without it, nowhere.",
    ),
]
AppDir = Annotated[
    Path,
    typer.Option(
        exists=True,
        file_okay=False,
        resolve_path=True,
        envvar="JOBQ_APP_DIR",
        show_envvar=False,
        help="Where your modules are: first on sys.path.",
    ),
]
Log = Annotated[
    LogLevel,
    typer.Option("--log-level", envvar="JOBQ_LOG_LEVEL", show_envvar=False, help="What to log: this and worse."),
]
Format = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="JOBQ_LOG_FORMAT",
        show_envvar=False,
        help="Lines for people, or an object of JSON a line for programs.",
    ),
]
