"""`jobq run app:queue`: load the user's queue, work until asked to stop, and end with the worker's exit code.

SIGTERM and SIGINT ask for a stop from the moment that there is an event loop, so also while the database is waited
for: drain, and at the second one hurry.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from jobq.cli.database import (
    Dsn,
    Embedded,
    ListenDsn,
    PreparedStatements,
    embedded_server,
    migrate_embedded,
    stated_access,
)
from jobq.cli.ending import FAILED, HANDED_BACK, StopLimit, bounded_end, end_now
from jobq.cli.logs import LogFormat, LogLevel, keep_log_enabled, show_log
from jobq.cli.target import as_queue, load, read_target
from jobq.cli.worker_options import (
    AppDir,
    AppQueue,
    CancelGrace,
    Concurrency,
    Format,
    Grace,
    Http,
    Log,
    StartLimit,
    WorkerLease,
    read_concurrency,
    times_of,
)
from jobq.errors import ConfigurationError
from jobq.settings import DEFAULT_SLOTS, WorkerSettings
from jobq.worker.probes import Address, listen

if TYPE_CHECKING:
    from jobq.queue import Queue
    from jobq.worker.supervisor import Worker

EXAMPLES = "Example: jobq run app:queue --concurrency mail=20 --grace 60s"

logger = logging.getLogger("jobq")


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
    listen_dsn: ListenDsn = None,
    prepared_statements: PreparedStatements = None,
    embedded: Embedded = False,
    app_dir: AppDir = Path(),
    log_level: Log = LogLevel.INFO,
    log_format: Format = LogFormat.HUMAN,
) -> None:
    """Run a worker for your queue, until SIGTERM or Ctrl-C.

    A stop drains: nothing more is claimed, running jobs get the grace, then they are cancelled and handed back. A
    second signal skips the grace. Ten seconds after the grace the process has ended, whatever is broken. Exit codes: 0
    drained, 1 crashed, 3 jobs were handed back, 75 no database, 78 wrong configuration.

    A duration is 25s, 10m or 1h30m; a number alone counts seconds. What is not stated here may stand in the environment
    (JOBQ_APP, JOBQ_GRACE, ...) or in the settings file: `jobq config` shows what holds.
    """
    slots, default_slots = read_concurrency(concurrency)
    times = times_of(grace=grace, cancel_grace=cancel_grace, start_limit=start_limit, worker_lease=worker_lease)
    show_log(log_level, log_format)
    # The console script does not put the working directory there; it stays, for what handlers import when they run.
    sys.path.insert(0, str(app_dir))
    wanted = read_target(target)
    found = load(wanted, directory=app_dir)
    keep_log_enabled()

    with ExitStack() as stack:
        probes = None if http is None else stack.enter_context(listen(http))
        if probes is not None:
            logger.info("probes: http://%s/healthz, /readyz and /metrics", Address(*probes.getsockname()[:2]))
        server_dsn = stack.enter_context(embedded_server()) if embedded else None
        stop_limit = StopLimit(HANDED_BACK)

        async def make_worker() -> Worker:
            from jobq.worker.supervisor import Worker

            queue = await as_queue(wanted, found)
            if server_dsn is not None:
                queue.use_dsn(server_dsn)
            else:
                # What is typed goes before the code; what is configured stands in where the code leaves it open.
                typed, configured = (
                    stated_access(dsn, listen_dsn, prepared_statements, is_typed=is_typed) for is_typed in (True, False)
                )
                queue.access = typed.over(queue.access).over(configured)
            settings = _settings(queue, slots, default_slots, times)
            stop_limit.allow(settings.stop_limit_s, hurried_s=settings.hurried_stop_limit_s)
            if embedded:
                await migrate_embedded(queue.dsn, queue.schema)
            return Worker(queue, settings, http=probes)

        runner = asyncio.Runner(loop_factory=_loop_factory())
        code = FAILED
        try:
            code = runner.run(_work(make_worker, stop_limit, until_empty=until_empty))
        finally:
            with bounded_end(code):
                runner.close()
    raise typer.Exit(code)


def _spare_the_collector() -> None:
    """Leave alone what was imported, and look less often: a job makes some twenty objects, hardly any in a cycle.

    With Python's own threshold of 700 the collector takes a tenth of a busy worker's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


async def _work(make_worker: Callable[[], Awaitable[Worker]], stop_limit: StopLimit, *, until_empty: bool) -> int:
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
        # In place of the loop's own handler, which does nothing: the loop hears of a signal through a socket.
        signal.signal(number, stop_limit.note)
    with starting:
        worker = await make_worker()
        _spare_the_collector()
    if worker is None or starting.cancel_called:
        return 0
    code = await worker.run(until_empty=until_empty)
    if worker.is_stuck:
        end_now(code)
    return code


def _settings(
    queue: Queue, slots: dict[str, int], default_slots: int | None, times: dict[str, float]
) -> WorkerSettings:
    """Put together what the command line states, then what the queue states; the rest are the defaults."""
    for name in slots:
        if queue.handlers and name not in queue.served:
            raise ConfigurationError(
                f"concurrency {name}=...: the worker serves {', '.join(queue.served)}, and no such queue; correct it"
                " where `jobq config` says that it comes from, or name the queue in Queue(queues=...)"
            )
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
