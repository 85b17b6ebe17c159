"""`jobq run app:queue`: load the user's queue, work until asked to stop, and end with the worker's exit code.

SIGTERM and SIGINT ask for a stop from the moment that there is an event loop, so also while the database is waited
for: drain, and at the second one hurry.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from jobq.cli.database import Dsn, Embedded, check_one_database, embedded_server, migrate_embedded
from jobq.cli.durations import duration_or_seconds
from jobq.cli.ending import FAILED, bounded_end, end_now
from jobq.cli.logs import LogLevel, keep_log_enabled, show_log
from jobq.cli.target import as_queue, load, read_target
from jobq.errors import ConfigurationError
from jobq.settings import DEFAULT_SLOTS, WorkerSettings
from jobq.worker.probes import Address, listen, parse_address

if TYPE_CHECKING:
    from jobq.queue import Queue
    from jobq.worker.supervisor import Worker

EXAMPLES = "Example: jobq run app:queue --concurrency mail=20 --grace 60s"

_CONCURRENCY = re.compile(r"(?:(?P<queue>.+)=)?(?P<slots>[0-9]{1,9})")

logger = logging.getLogger("jobq")


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ConfigurationError as error:
        raise typer.BadParameter(f"{error}.") from None


# What `jobq systemd` takes too.
AppQueue = Annotated[
    str,
    typer.Argument(
        metavar="APP:QUEUE",
        help="Where your queue is: module:attribute, or module:function() for a function that makes it.",
        show_default=False,
    ),
]
Concurrency = Annotated[
    list[str] | None,
    typer.Option(
        metavar="QUEUE=N",
        help=f"How many jobs of a queue run at once; N alone: of every other queue ({DEFAULT_SLOTS}). Repeatable.",
    ),
]
Grace = Annotated[
    timedelta | None,
    typer.Option(parser=duration_or_seconds, metavar="S", help="How long running jobs may go on after a stop (25s)."),
]
CancelGrace = Annotated[
    timedelta | None,
    typer.Option(parser=duration_or_seconds, metavar="S", help="How long their clean-up may take after that (5s)."),
]
StartLimit = Annotated[
    timedelta | None,
    typer.Option(parser=duration_or_seconds, metavar="S", help="How long to wait for the database at the start (60s)."),
]
WorkerLease = Annotated[
    timedelta | None,
    typer.Option(
        parser=duration_or_seconds,
        metavar="S",
        help="How long a silent worker keeps its jobs (20s): longer than a failover, or that cancels what runs.",
    ),
]
Http = Annotated[
    Address | None,
    typer.Option(
        parser=_address,
        metavar="HOST:PORT",
        help="Answer /healthz and /readyz there; port 0 takes a free one. Without it, nowhere.",
    ),
]
AppDir = Annotated[
    Path,
    typer.Option(exists=True, file_okay=False, resolve_path=True, help="Where your modules are: first on sys.path."),
]


def run(
    target: AppQueue,
    concurrency: Concurrency = None,
    grace: Grace = None,
    cancel_grace: CancelGrace = None,
    start_limit: StartLimit = None,
    worker_lease: WorkerLease = None,
    http: Http = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Stop as soon as no job is ready or running.")
    ] = False,
    dsn: Dsn = None,
    embedded: Embedded = False,
    app_dir: AppDir = Path(),
    log_level: Annotated[LogLevel, typer.Option(help="What to log: this and worse.")] = LogLevel.INFO,
) -> None:
    """Run a worker for your queue, until SIGTERM or Ctrl-C.

    A stop drains: nothing more is claimed, running jobs get the grace, then they are cancelled and handed back. A
    second signal skips the grace. Exit codes: 0 drained, 1 crashed, 3 jobs were handed back, 75 no database, 78 wrong
    configuration.
    """
    check_one_database(dsn, embedded)
    slots, default_slots = read_concurrency(concurrency or [])
    times = times_of(grace=grace, cancel_grace=cancel_grace, start_limit=start_limit, worker_lease=worker_lease)
    show_log(log_level)
    # The console script does not put the working directory there; it stays, for what handlers import when they run.
    sys.path.insert(0, str(app_dir))
    wanted = read_target(target)
    found = load(wanted, directory=app_dir)
    keep_log_enabled()

    with ExitStack() as stack:
        probes = None if http is None else stack.enter_context(listen(http))
        if probes is not None:
            logger.info("probes: http://%s/healthz and /readyz", Address(*probes.getsockname()[:2]))
        if embedded:
            dsn = stack.enter_context(embedded_server())

        async def make_worker() -> Worker:
            from jobq.worker.supervisor import Worker

            queue = await as_queue(wanted, found)
            if dsn is not None:
                queue.use_dsn(dsn)
            settings = _settings(queue, slots, default_slots, times)
            if embedded:
                await migrate_embedded(queue.dsn, queue.schema)
            return Worker(queue, settings, http=probes)

        runner = asyncio.Runner(loop_factory=_loop_factory())
        code = FAILED
        try:
            code = runner.run(_work(make_worker, until_empty=until_empty))
        finally:
            with bounded_end(code):
                runner.close()
    raise typer.Exit(code)


async def _work(make_worker: Callable[[], Awaitable[Worker]], *, until_empty: bool) -> int:
    """Make the worker and run it, both until a signal asks for a stop. Returns the exit code."""
    worker: Worker | None = None
    signals = 0
    starting = anyio.CancelScope()

    def stop(number: signal.Signals) -> None:
        nonlocal signals
        signals += 1
        logger.info("%s: %s", number.name, "stopping" if signals == 1 else "no more grace")
        if worker is None:
            starting.cancel()
        else:
            worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    with starting:
        worker = await make_worker()
    if worker is None or starting.cancel_called:
        return 0
    code = await worker.run(until_empty=until_empty)
    if worker.is_stuck:
        end_now(code)
    return code


def read_concurrency(texts: list[str]) -> tuple[dict[str, int], int | None]:
    """Return the slots of single queues, and those of all others if stated."""
    slots: dict[str, int] = {}
    default_slots: int | None = None
    for text in texts:
        match = _CONCURRENCY.fullmatch(text)
        if match is None:
            raise typer.BadParameter(f"{text!r} is neither QUEUE=N nor N.", param_hint="--concurrency")
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
    """Return the times of `WorkerSettings` that the command line states, or that follow from those."""
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


def _settings(
    queue: Queue, slots: dict[str, int], default_slots: int | None, times: dict[str, float]
) -> WorkerSettings:
    """Put together what the command line states, then what the queue states; the rest are the defaults."""
    served = sorted({handler.queue for handler in queue.handlers.values()})
    for name in slots:
        if served and name not in served:
            raise ConfigurationError(f"--concurrency {name}=...: the queues with handlers are {', '.join(served)}")
    return WorkerSettings(
        slots={**queue.slots, **slots},
        default_slots=DEFAULT_SLOTS if default_slots is None else default_slots,
        **times,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
