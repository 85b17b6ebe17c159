"""A worker: what starts, watches and stops its loops, and with which exit code it ends.

Three nested task groups are the stop order, from the inside out:

    services    settler, listener, upkeep     stop last: outcomes are written until there are none
      jobs      the executors' sweeps         get the grace, are cancelled, are handed back
        intake  the claim loops               stop first: nothing is claimed once a stop is asked for
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from enum import IntEnum
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from jobq.core.job import WorkerId
from jobq.db.connect import Link
from jobq.db.migrate import check_version
from jobq.db.reports import Reports
from jobq.db.store import Store
from jobq.errors import AccessRefusedError, ConfigurationError, DatabaseUnavailableError
from jobq.handle import Resources, Scope
from jobq.queue import Queue
from jobq.registration import Handler
from jobq.settings import WorkerSettings
from jobq.telemetry.events import (
    DrainStarted,
    DuplicatesUnstated,
    Emit,
    LifespanOverran,
    LoopCrashed,
    SchemaNewer,
    WorkerStarted,
    WorkerStopped,
)
from jobq.telemetry.log import log_event
from jobq.worker.claimer import Claimer
from jobq.worker.executor import Executor
from jobq.worker.listener import Listener
from jobq.worker.outage import Outage
from jobq.worker.settler import Settler
from jobq.worker.upkeep import Upkeep

RESTARTS = 5
"""How often one loop is restarted after a bug within `RESTARTS_WITHIN_S`, before the worker gives up."""

RESTARTS_WITHIN_S = 60.0

EMPTY_CHECK_S = 0.05


class ExitCode(IntEnum):
    """How the process ends; the systemd unit knows these."""

    DRAINED = 0
    CRASHED = 1
    HANDED_BACK = 3
    NO_DATABASE = 75
    BAD_CONFIGURATION = 78


class Worker:
    """One worker of a queue in this process and event loop. `run` it once."""

    def __init__(self, queue: Queue, settings: WorkerSettings | None = None, *, emit: Emit = log_event) -> None:
        if not queue.handlers:
            raise ConfigurationError(
                "no handler is registered, so there is nothing to run: decorate one with @queue.task"
            )
        self._settings = settings or WorkerSettings(slots=queue.slots)
        self._queue = queue
        self._emit = emit
        self.worker_id = WorkerId(uuid4())
        self._store = Store(queue.schema)
        self._links = {
            role: Link(queue.dsn, role=role, deadline_s=self._settings.statement_deadline_s)
            for role in ("claims", "settling", "upkeep")
        }
        self._settler = Settler(store=self._store, link=self._links["settling"], worker_id=self.worker_id, emit=emit)
        self._executors: list[Executor] = []
        self._claimers: list[Claimer] = []
        self._stop = anyio.Event()
        self._hurry = anyio.Event()
        self._whole: anyio.CancelScope | None = None
        self._is_starting = True
        self._exit_code = ExitCode.DRAINED

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
                for executor in self._executors:
                    await executor.end_rest(self._settings.cancel_grace_s)
                for link in self._links.values():
                    await link.close()
                await self._queue.close()

    async def _wait_for_database(self) -> None:
        outage = Outage("start", self._emit)
        give_up_at = time.monotonic() + self._settings.start_limit_s
        while True:
            try:
                async with self._links["upkeep"].lend() as conn:
                    if warning := await check_version(conn, self._queue.schema):
                        self._emit(SchemaNewer(warning))
                outage.over()
                return
            except DatabaseUnavailableError as error:
                if isinstance(error, AccessRefusedError) or time.monotonic() >= give_up_at:
                    raise
                await outage.pause(error)

    async def _work(self, resources: Resources, until_empty: bool) -> None:
        self._make_loops(resources)
        self._say_hello()
        listener = Listener(dsn=self._queue.dsn, channel=self._queue.schema, wake=self._wake, emit=self._emit)
        upkeep = Upkeep(store=self._store, link=self._links["upkeep"], every_s=self._settings.upkeep_s, emit=self._emit)
        async with anyio.create_task_group() as services:
            self._start_loop(services, "settler", self._settler.run)
            self._start_loop(services, "listener", listener.run)
            self._start_loop(services, "upkeep", upkeep.run)
            async with anyio.create_task_group() as jobs:
                for executor in self._executors:
                    self._start_loop(jobs, f"{executor.name} sweep", self._sweep_of(executor))
                async with anyio.create_task_group() as intake:
                    for claimer in self._claimers:
                        self._start_loop(intake, f"claims of {claimer.queue}", claimer.run)
                    if until_empty:
                        self._start_loop(intake, "until empty", self._stop_when_empty)
                    await self._stop.wait()
                    intake.cancel_scope.cancel()
                await self._drain()
                jobs.cancel_scope.cancel()
            unsettled = await self._settle_rest()
            if unsettled and self._exit_code is ExitCode.DRAINED:
                self._exit_code = ExitCode.HANDED_BACK
            services.cancel_scope.cancel()
        self._say_goodbye(unsettled)

    def _make_loops(self, resources: Resources) -> None:
        scope = Scope(self._store, self.worker_id, resources, self._queue.pool)
        context = copy_context()
        by_executor: dict[tuple[str, str], dict[str, Handler[..., object]]] = {}
        for handler in self._queue.handlers.values():
            executor_name = "async" if handler.signature.is_async else "thread"
            by_executor.setdefault((handler.queue, executor_name), {})[handler.kind] = handler
        for (queue, name), handlers in sorted(by_executor.items()):
            executor = Executor(
                name=name,
                slots=self._settings.slots_of(queue),
                handlers=handlers,
                middleware=self._queue.middlewares,
                scope=scope,
                context=context,
                settler=self._settler,
                cancel_grace_s=self._settings.cancel_grace_s,
                emit=self._emit,
                on_blocked_thread=self._give_up_on_thread,
            )
            self._executors.append(executor)
            self._claimers.append(
                Claimer(
                    queue=queue,
                    executor=executor,
                    settler=self._settler,
                    store=self._store,
                    link=self._links["claims"],
                    worker_id=self.worker_id,
                    settings=self._settings,
                    stopping=self._stop.is_set,
                    emit=self._emit,
                )
            )

    # -- loops ---------------------------------------------------------------------------------------

    def _start_loop(self, group: TaskGroup, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        group.start_soon(self._keep_running, name, loop, name=f"jobq {name}")

    async def _keep_running(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run *loop*; after a bug restart it with backoff, and stop the worker if it keeps crashing."""
        crashes: list[float] = []
        while True:
            try:
                await loop()
                return
            except Exception as error:
                now = time.monotonic()
                crashes = [*(at for at in crashes if now - at < RESTARTS_WITHIN_S), now]
                restarting = len(crashes) <= RESTARTS
                text = "".join(traceback.format_exception(error))
                self._emit(LoopCrashed(name, type(error).__name__, str(error), text, restarting))
                if not restarting:
                    self._exit_code = ExitCode.CRASHED
                    self._stop.set()
                    return
            await anyio.sleep(0.1 * 2 ** (len(crashes) - 1))

    def _sweep_of(self, executor: Executor) -> Callable[[], Awaitable[None]]:
        return lambda: executor.sweep(self._settings.sweep_s)

    def _wake(self, queue: str | None) -> None:
        for claimer in self._claimers:
            if queue is None or claimer.queue == queue:
                claimer.wake()

    async def _stop_when_empty(self) -> None:
        """Ask for a stop once nothing is ready, running or unsettled."""
        reports = Reports(self._queue.schema)
        while True:
            await anyio.sleep(EMPTY_CHECK_S)
            if self._is_busy():
                continue
            # What starts during the questions may enqueue into a queue that was asked already.
            started = self._started()
            try:
                ready = [claimer for claimer in self._claimers if await self._has_ready(reports, claimer)]
            except DatabaseUnavailableError:
                continue
            for claimer in ready:
                claimer.wake()
            if not ready and not self._is_busy() and self._started() == started:
                self._stop.set()
                return

    async def _has_ready(self, reports: Reports, claimer: Claimer) -> bool:
        async with self._links["upkeep"].lend() as conn:
            return await reports.has_ready(conn, [claimer.queue], claimer.kinds)

    def _started(self) -> int:
        return sum(executor.started for executor in self._executors)

    def _is_busy(self) -> bool:
        claiming = any(claimer.is_claiming for claimer in self._claimers)
        return claiming or self._running() > 0 or self._settler.backlog > 0

    # -- stopping ------------------------------------------------------------------------------------

    def _running(self) -> int:
        return sum(executor.running for executor in self._executors)

    async def _drain(self) -> None:
        """Let running jobs finish; cancel what the grace did not suffice for."""
        self._emit(DrainStarted(self._running(), self._settings.grace_s))
        with anyio.move_on_after(self._settings.grace_s):
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(self._cancel_on_hurry, waiting)
                for executor in self._executors:
                    await executor.wait_idle()
                waiting.cancel_scope.cancel()
        if self._running():
            if self._exit_code is ExitCode.DRAINED:
                self._exit_code = ExitCode.HANDED_BACK
            for executor in self._executors:
                executor.interrupt_all()
            # The sweep gives up on what ignores its cancellation after the cancel grace; a little more for its turn.
            with anyio.move_on_after(self._settings.cancel_grace_s + 2 * self._settings.sweep_s):
                for executor in self._executors:
                    await executor.wait_idle()
            for executor in self._executors:
                executor.report_rest()

    async def _cancel_on_hurry(self, waiting: TaskGroup) -> None:
        await self._hurry.wait()
        waiting.cancel_scope.cancel()

    async def _settle_rest(self) -> int:
        with anyio.move_on_after(self._settings.statement_deadline_s):
            await self._settler.wait_settled()
        return self._settler.backlog

    def _give_up_on_thread(self) -> None:
        """A thread is past its time-out and cannot be stopped: end the process, so that its lease can lapse."""
        self._exit_code = ExitCode.HANDED_BACK
        self._stop.set()

    def _handed_back(self) -> int:
        return sum(executor.handed_back for executor in self._executors)

    # -- what is said --------------------------------------------------------------------------------

    def _say_hello(self) -> None:
        slots: dict[str, int] = {}
        for executor, claimer in zip(self._executors, self._claimers, strict=True):
            slots[claimer.queue] = slots.get(claimer.queue, 0) + executor.slots
        self._emit(WorkerStarted(self.worker_id, slots, sorted(self._queue.handlers)))
        unstated = [kind for kind, handler in self._queue.handlers.items() if handler.on_duplicate is None]
        if unstated:
            self._emit(DuplicatesUnstated(sorted(unstated)))

    def _say_goodbye(self, unsettled: int) -> None:
        finished = sum(executor.finished for executor in self._executors)
        self._emit(WorkerStopped(self._exit_code, finished, self._handed_back(), unsettled + self._running()))

    @property
    def is_stuck(self) -> bool:
        """Whether a handler runs on that nothing can stop: the process has to end by `os._exit`."""
        return any(executor.is_stuck for executor in self._executors)
