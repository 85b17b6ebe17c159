"""A worker: what starts, watches and stops its loops, and with which exit code it ends.

Three nested task groups are the stop order, from the inside out:

    services    side thread, settler, listener, reaper, upkeep   stop last: leases are kept and outcomes written
      jobs      the executors' sweeps                            get the grace, are cancelled, are handed back
        intake  the claim loops, the quarantine                  stop first: nothing is claimed any more

In the side thread run the heartbeat, the watch over the event loop, the probes and systemd's watchdog: a handler that
blocks the loop must not cost the lease, nor the process.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import partial
from socket import socket
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from jobq.core.job import ClaimedJob, WorkerId
from jobq.core.outcomes import DRAINED
from jobq.db.connect import Link
from jobq.db.migrate import check_version
from jobq.db.reports import Reports
from jobq.errors import (
    AccessRefusedError,
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailableError,
    PreparedStatementError,
    SchemaError,
)
from jobq.handle import Resources
from jobq.queue import Queue
from jobq.settings import WorkerSettings
from jobq.telemetry.context import worker_of_context
from jobq.telemetry.events import (
    DrainEnded,
    DrainStarted,
    DuplicatesUnstated,
    Emit,
    Event,
    LifespanOverran,
    SchemaNewer,
    WorkerStarted,
    WorkerStopped,
)
from jobq.telemetry.log import log_event
from jobq.telemetry.metrics import Metrics, can_be_shown
from jobq.telemetry.readings import OverviewNow, WorkerNow
from jobq.worker.assembly import Parts
from jobq.worker.executor import Executor
from jobq.worker.gauges import read_gauges
from jobq.worker.loops import Loops
from jobq.worker.probes import Probes
from jobq.worker.pulse import Pulse
from jobq.worker.side_thread import Routine, SideThread
from jobq.worker.systemd import Notifier
from jobq.worker.until_empty import wait_until_empty

LAST_CALL_S = 1.0
"""What a handler gets that has ignored its cancellation for the cancel grace already, and is cancelled once more."""

Renderer = Callable[[Metrics, WorkerNow, OverviewNow | None], bytes]


class ExitCode(IntEnum):
    """How the process ends; the systemd unit knows these."""

    DRAINED = 0
    CRASHED = 1
    HANDED_BACK = 3
    NO_DATABASE = 75
    BAD_CONFIGURATION = 78


class Worker:
    """One worker of a queue in this process and event loop. `run` it once.

    *http* is a listening socket for `/healthz`, `/readyz` and `/metrics`, None for none.
    """

    def __init__(
        self,
        queue: Queue,
        settings: WorkerSettings | None = None,
        *,
        http: socket | None = None,
        emit: Emit = log_event,
    ) -> None:
        if not queue.handlers:
            raise ConfigurationError(
                "no handler is registered, so there is nothing to run: decorate one with @queue.task"
            )
        self._settings = settings or WorkerSettings(slots=queue.slots)
        self._queue = queue
        self._http = http
        self._tell = emit
        self._metrics: Metrics | None = None
        self._render = None if http is None else _find_renderer()
        self.worker_id = WorkerId(uuid4())
        self._notifier = Notifier()
        self._loops = Loops(on_hopeless=self._give_up, emit=self._emit)
        self._parts: Parts | None = None
        self._stop = anyio.Event()
        self._hurry = anyio.Event()
        self._whole: anyio.CancelScope | None = None
        self._is_starting = True
        self._exit_code = ExitCode.DRAINED

    @property
    def is_stuck(self) -> bool:
        """Whether a handler runs on that nothing can stop: the process has to end by `os._exit`."""
        return self._parts is not None and self._parts.is_stuck

    # -- stopping from outside -----------------------------------------------------------------------

    def stop(self) -> None:
        """Ask for a stop: drain, with grace. Asked again, skip the grace. Legal at any time."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()
        if self._is_starting and self._whole is not None:
            self._whole.cancel()

    # -- the run -------------------------------------------------------------------------------------

    async def run(self, *, until_empty: bool = False) -> ExitCode:
        """Work until a stop is asked for, or until nothing is ready if *until_empty*. Returns the exit code.

        Raises `ConfigurationError` (78) if the schema is not this code's, and `DatabaseUnavailableError` (75) if the
        database is not there within the start limit; before that nothing was claimed.
        """
        worker_of_context.set(self.worker_id)
        try:
            with anyio.CancelScope() as whole:
                self._whole = whole
                if self._stop.is_set():
                    return self._exit_code
                await self._wait_for_database()
                async with self._queue.open_resources() as resources:
                    self._is_starting = False
                    await self._work(resources, until_empty)
                    whole.deadline = anyio.current_time() + self._settings.cancel_grace_s
            if whole.cancelled_caught and not self._is_starting:
                self._emit(LifespanOverran(self._settings.cancel_grace_s))
            return self._exit_code
        finally:
            with anyio.CancelScope(shield=True):
                await self._queue.close()

    async def _wait_for_database(self) -> None:
        route = self._queue.route
        link = Link(
            route.dsn,
            role="start",
            deadline_s=self._settings.statement_deadline_s,
            prepared_statements=route.prepared_statements,
        )
        pulse = Pulse("start", bound_s=link.patience_s, emit=self._emit)
        give_up_at = time.monotonic() + self._settings.start_limit_s
        try:
            while True:
                try:
                    async with link.lend() as conn:
                        if warning := await check_version(conn, self._queue.schema):
                            self._emit(SchemaNewer(warning))
                    pulse.worked()
                    return
                except DatabaseUnavailableError as error:
                    if isinstance(error, AccessRefusedError) or time.monotonic() >= give_up_at:
                        raise
                    await pulse.pause(error)
                except PreparedStatementError as error:
                    raise ConfigurationError(str(error)) from error
        finally:
            with anyio.CancelScope(shield=True):
                await link.close()

    def _emit(self, event: Event) -> None:
        if self._metrics is not None:
            self._metrics(event)
        self._tell(event)

    async def _work(self, resources: Resources, until_empty: bool) -> None:
        if self._render is not None:
            self._metrics = Metrics(self._queue.handlers, self._queue.served)
        parts = self._parts = Parts(
            self._queue,
            self._settings,
            worker_id=self.worker_id,
            resources=resources,
            stopping=self._stop.is_set,
            on_blocked_thread=self._give_up_on_thread,
            emit=self._emit,
        )
        side_thread = SideThread(self._side_routines(parts), at_end=parts.links["heartbeat"].close)
        end_s = self._settings.cancel_grace_s
        try:
            async with anyio.create_task_group() as services:
                self._loops.start(services, "side thread", side_thread.run)
                self._loops.start(services, "loop turn", parts.loop_watch.turn)
                self._loops.start(services, "lease watch", parts.heartbeat.watch_lease)
                self._loops.start(services, "settler", parts.settler.run)
                self._loops.start(services, "listener", parts.listener.run)
                self._loops.start(services, "reaper", parts.reaper.run)
                self._loops.start(services, "upkeep", parts.upkeep.run)
                self._loops.start(services, "recurring", parts.recurring.run)
                self._loops.start(services, "look behind", parts.look_behind.run)
                self._loops.start(services, "tally", parts.tally.run)
                self._loops.start(services, "slow jobs", parts.slow_jobs.run)
                for name, loop in parts.watching(is_scraped=self._metrics is not None).items():
                    self._loops.start(services, name, loop)
                services.start_soon(self._say_hello, parts)
                async with anyio.create_task_group() as jobs:
                    for executor in parts.executors:
                        self._loops.start(jobs, f"{executor.name} sweep", self._sweep_of(executor))
                    async with anyio.create_task_group() as intake:
                        self._loops.start(intake, "quarantine", parts.quarantine.run)
                        for claimer in parts.claimers:
                            self._loops.start(intake, f"claims of {claimer.queue}", claimer.run)
                        if until_empty:
                            self._loops.start(intake, "until empty", self._stop_when_empty)
                        await self._stop.wait()
                        asked_at = time.monotonic()
                        before = parts.finished, parts.handed_back
                        self._notifier.stopping()
                        intake.cancel_scope.cancel()
                    parts.end_intake()
                    await self._drain(parts, before, asked_at)
                    end_s = min(end_s, LAST_CALL_S)
                    jobs.cancel_scope.cancel()
                unsettled = await self._settle_rest(parts)
                services.cancel_scope.cancel()
            left = unsettled + parts.running
            self._emit(WorkerStopped(self._exit_code, parts.finished, parts.handed_back, left, parts.lost))
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as ending:
                    for executor in parts.executors:
                        ending.start_soon(executor.end_rest, end_s)
                await self._say_goodbye(parts)
                await parts.close()

    def _side_routines(self, parts: Parts) -> list[Routine]:
        async def notify(_: object) -> None:
            await self._notifier.report(status=lambda: _status(parts), is_alive=lambda: not self._stuck(parts))

        async def probe(_: object) -> None:
            assert self._http is not None
            stuck = partial(self._stuck, parts)
            shown = partial(self._scrape, parts) if self._render is not None else None
            await Probes(self._http, stuck=stuck, failing=parts.failing, metrics=shown).serve()

        routines: list[Routine] = [parts.heartbeat.beat, parts.loop_watch.watch, notify]
        if self._http is not None:
            routines.append(probe)
        return routines

    def _scrape(self, parts: Parts) -> bytes:
        assert self._render is not None
        assert self._metrics is not None
        return self._render(self._metrics, read_gauges(parts), parts.lookout.last)

    def _stuck(self, parts: Parts) -> list[str]:
        """The loops that do not come round, unless a job within its hard time-out is what holds them up."""
        if parts.loop_watch.is_blocked:
            return [] if parts.loop_watch.is_excused else ["event loop"]
        return parts.vitals.stuck(since=parts.loop_watch.unblocked_at)

    # -- loops ---------------------------------------------------------------------------------------

    def _sweep_of(self, executor: Executor) -> Callable[[], Awaitable[None]]:
        return lambda: executor.sweep(self._settings.sweep_s)

    async def _stop_when_empty(self) -> None:
        assert self._parts is not None
        await wait_until_empty(self._parts, Reports(self._queue.schema))
        self._stop.set()

    # -- stopping ------------------------------------------------------------------------------------

    async def _drain(self, parts: Parts, before: tuple[int, int], asked_at: float) -> None:
        """Let running jobs finish; cancel what the grace did not suffice for. It counts from *asked_at*.

        *before* is how many attempts had finished, and how many jobs were handed back, when the stop was asked for.
        """
        self._emit(DrainStarted(parts.running, self._settings.grace_s))
        # A silent database has held up the end of the intake, by a claim in flight.
        with anyio.move_on_after(max(0.0, asked_at + self._settings.grace_s - time.monotonic())):
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(self._cancel_on_hurry, waiting)
                for executor in parts.executors:
                    await executor.wait_idle()
                waiting.cancel_scope.cancel()
        cancelled: list[ClaimedJob] = []
        graceful_s = time.monotonic() - asked_at
        finished, handed_back = parts.finished - before[0], parts.handed_back - before[1]
        if parts.running:
            if self._exit_code is ExitCode.DRAINED:
                self._exit_code = ExitCode.HANDED_BACK
            for executor in parts.executors:
                cancelled += executor.interrupt_all(DRAINED)
            # The sweep gives up on what ignores its cancellation after the cancel grace; a little more for its turn.
            with anyio.move_on_after(self._settings.cancel_grace_s + 2 * self._settings.sweep_s):
                for executor in parts.executors:
                    await executor.wait_idle()
            for executor in parts.executors:
                executor.report_rest()
        names = [f"{one.kind} {one.id}" for one in cancelled]
        self._emit(DrainEnded(finished, handed_back, names, graceful_s))

    async def _cancel_on_hurry(self, waiting: TaskGroup) -> None:
        await self._hurry.wait()
        waiting.cancel_scope.cancel()

    async def _settle_rest(self, parts: Parts) -> int:
        with anyio.move_on_after(self._settings.statement_deadline_s):
            await parts.settler.wait_settled()
        unsettled = parts.settler.backlog + len(parts.settler.given_up)
        if unsettled and self._exit_code is ExitCode.DRAINED:
            self._exit_code = ExitCode.HANDED_BACK
        return unsettled

    def _give_up(self) -> None:
        """A loop keeps crashing: whatever it is for is not done here any more."""
        self._exit_code = ExitCode.CRASHED
        self._stop.set()

    def _give_up_on_thread(self) -> None:
        """A thread is past its time-out and cannot be stopped: end the process, so that its lease can lapse."""
        self._exit_code = ExitCode.HANDED_BACK
        self._stop.set()

    # -- what is said --------------------------------------------------------------------------------

    async def _say_hello(self, parts: Parts) -> None:
        await parts.heartbeat.wait_registered()
        slots = {name: self._settings.slots_of(name) for name in self._queue.served}
        self._emit(WorkerStarted(self.worker_id, slots, sorted(self._queue.handlers)))
        unstated = [kind for kind, handler in self._queue.handlers.items() if handler.on_duplicate is None]
        if unstated:
            self._emit(DuplicatesUnstated(sorted(unstated)))
        self._notifier.ready()

    async def _say_goodbye(self, parts: Parts) -> None:
        """Write the last counts, and drop the worker's row unless it holds something: then its lease has to lapse."""
        try:
            await parts.tally.write()
            if parts.running or parts.settler.backlog or parts.settler.given_up:
                return
            async with parts.links["upkeep"].lend() as conn:
                await parts.strays.release(conn)  # no next claim will
                await parts.store.say_goodbye(conn, self.worker_id)
        except (DatabaseError, SchemaError):
            pass  # The lease lapses and any reaper forgets the row.


def _status(parts: Parts) -> str:
    """Return one line for `systemctl status`."""
    if failing := parts.failing():
        return f"not working: {', '.join(failing)}; {parts.running} jobs running"
    return f"working; {parts.running} of {parts.slots} slots busy"


def _find_renderer() -> Renderer | None:
    """Return what makes the text of `/metrics`, or None without prometheus-client."""
    if not can_be_shown():
        return None
    # Only where it can be; and before the worker runs, not at the first scrape, which would wait for it.
    from jobq.telemetry.exposition import render

    return render
