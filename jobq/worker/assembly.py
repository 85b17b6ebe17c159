"""Puts a worker together: every part with what it needs, and what they ask each other."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from importlib.metadata import version
from itertools import product

from jobq.alerts import BacklogHook
from jobq.core.job import JobId, WorkerId
from jobq.core.outcomes import LEASE_LAPSED
from jobq.core.worker import Slots, WorkerRow
from jobq.db.connect import Ear, Link
from jobq.db.incidents import Incidents
from jobq.db.overview import Overview
from jobq.db.recurring import RecurringStore
from jobq.db.statements import load_statements
from jobq.db.store import Owned, Store
from jobq.handle import Resources, Scope
from jobq.queue import Queue
from jobq.registration import Handler
from jobq.settings import WorkerSettings
from jobq.telemetry.events import Emit, Event, LeaseLapsed, LeaseLost
from jobq.telemetry.measured import AttemptsSettled, WakeUp
from jobq.worker.claimer import Claimer, unheard_poll_s
from jobq.worker.executor import Executor
from jobq.worker.heartbeat import Heartbeat
from jobq.worker.in_hand import InHand
from jobq.worker.listener import Listener
from jobq.worker.look_behind import LookBehind
from jobq.worker.lookout import Lookout
from jobq.worker.loop_watch import LoopWatch
from jobq.worker.outage import SaidOnce
from jobq.worker.pulse import Vitals
from jobq.worker.quarantine import Quarantine
from jobq.worker.reaper import Reaper
from jobq.worker.recurring import Recurring
from jobq.worker.settler import Settler
from jobq.worker.slow_jobs import SlowJobs
from jobq.worker.strays import Strays
from jobq.worker.stuck_slots import StuckSlots
from jobq.worker.tally import Tally
from jobq.worker.teller import Teller
from jobq.worker.upkeep import Upkeep


class Parts:
    """The parts of one worker, ready to run. *stopping* says whether a stop was asked for."""

    def __init__(
        self,
        queue: Queue,
        settings: WorkerSettings,
        *,
        worker_id: WorkerId,
        resources: Resources,
        stopping: Callable[[], bool],
        on_blocked_thread: Callable[[], None],
        emit: Emit,
    ) -> None:
        self.lost = 0
        """How many leases were lost."""
        self._said_once = SaidOnce(emit)
        emit = self._emit
        self.store = Store(queue.schema)
        route = queue.route
        self.links = {
            role: Link(route.dsn, role=role, deadline_s=deadline_s, prepared_statements=route.prepared_statements)
            for role, deadline_s in (
                ("claims", settings.statement_deadline_s),
                ("settling", settings.statement_deadline_s),
                ("upkeep", settings.statement_deadline_s),
                ("heartbeat", settings.beat_deadline_s),
            )
        }
        self.tally = Tally(
            store=self.store, link=self.links["upkeep"], worker_id=worker_id, every_s=settings.tally_s, emit=emit
        )
        self.settler = Settler(store=self.store, link=self.links["settling"], worker_id=worker_id, emit=emit)
        self.executors: list[Executor] = []
        self.claimers: list[Claimer] = []
        self.quarantine = Quarantine(
            store=self.store,
            link=self.links["claims"],
            worker_id=worker_id,
            executors=self.executors,
            settler=self.settler,
            emit=emit,
        )
        self.heartbeat = Heartbeat(
            store=self.store,
            link=self.links["heartbeat"],
            worker=_introduce(worker_id, queue, settings),
            settings=settings,
            in_hand=self.in_hand,
            on_lost=self._lose,
            on_lapsed=self._interrupt_lapsed,
            emit=emit,
        )
        self.loop_watch = LoopWatch(
            store=self.store, link=self.links["heartbeat"], worker_id=worker_id, in_hand=self.in_hand, emit=emit
        )
        self.listener = Listener(
            ear=Ear(route.listen_dsn, queue.schema, load_statements(queue.schema)["listening_channels"]),
            store=self.store,
            link=self.links["upkeep"],
            wake=self._wake,
            poll_s=unheard_poll_s(settings),
            emit=emit,
        )
        self.reaper = Reaper(
            store=self.store,
            link=self.links["upkeep"],
            worker_id=worker_id,
            settings=settings,
            on_reaped=self._wake_later,
            emit=emit,
        )
        self.upkeep = Upkeep(store=self.store, link=self.links["upkeep"], every_s=settings.upkeep_s, emit=emit)
        self.recurring = Recurring(
            store=RecurringStore(queue.schema),
            link=self.links["upkeep"],
            declared=list(queue.recurring.declared.values()),
            every_s=settings.recurring_s,
            emit=emit,
        )
        self.strays = Strays(
            store=self.store,
            worker_id=worker_id,
            in_hand=self._ids_in_hand,
            every_s=settings.worker_lease_s,
            emit=emit,
        )
        scope = Scope(self.store, worker_id, resources, queue.pool, settings.cancel_grace_s)
        context = copy_context()
        for name, (executor_class, handlers) in product(queue.served, _by_class(queue)):
            executor = Executor(
                name=executor_class,
                slots=settings.slots_of(name),
                handlers=handlers,
                middleware=queue.middlewares,
                scope=scope,
                context=context,
                settler=self.settler,
                cancel_grace_s=settings.cancel_grace_s,
                emit=emit,
                on_blocked_thread=on_blocked_thread,
                on_suspect=self.quarantine.put,
                trace=None if queue.tracing is None else queue.tracing.run,
            )
            self.executors.append(executor)
            self.claimers.append(
                Claimer(
                    queue=name,
                    executor=executor,
                    settler=self.settler,
                    store=self.store,
                    link=self.links["claims"],
                    worker_id=worker_id,
                    settings=settings,
                    stopping=stopping,
                    heartbeat=self.heartbeat,
                    quarantine=self.quarantine,
                    strays=self.strays,
                    hears=lambda: self.listener.hears,
                    emit=emit,
                )
            )
        self.look_behind = LookBehind(store=self.store, link=self.links["upkeep"], claimers=self.claimers, emit=emit)
        overview = Overview(queue.schema)
        self.slow_jobs = SlowJobs(
            executors=self.executors,
            slots=[
                StuckSlots(queue=claimer.queue, executor=executor, after_s=settings.slots_stuck_s, emit=emit)
                for claimer, executor in zip(self.claimers, self.executors, strict=True)
            ],
            overview=overview,
            link=self.links["upkeep"],
            emit=emit,
        )
        self.lookout = Lookout(
            overview=overview,
            link=self.links["upkeep"],
            queues=queue.served,
            every_s=settings.overview_s,
            emit=emit,
        )
        self.tellers = [
            Teller(
                hook,
                incidents=Incidents(queue.schema),
                link=self.links["upkeep"],
                lookout=self.lookout,
                worker_id=worker_id,
                every_s=settings.overview_s,
                emit=emit,
            )
            for hook in queue.hooks
        ]
        self.vitals = Vitals(
            [
                *(claimer.pulse for claimer in self.claimers),
                self.look_behind.pulse,
                self.settler.pulse,
                self.quarantine.pulse,
                self.heartbeat.pulse,
                self.loop_watch.pulse,
                self.listener.pulse,
                self.reaper.pulse,
                self.upkeep.pulse,
                self.recurring.pulse,
                self.tally.pulse,
            ]
        )

    # -- what the worker holds -----------------------------------------------------------------------

    @property
    def running(self) -> int:
        """How many attempts hold a slot."""
        return sum(executor.running for executor in self.executors)

    @property
    def started(self) -> int:
        """How many attempts have started."""
        return sum(executor.started for executor in self.executors)

    @property
    def is_busy(self) -> bool:
        """Whether anything is claimed, running, waiting to run alone or not settled yet."""
        claiming = any(claimer.is_claiming for claimer in self.claimers)
        return claiming or self.running > 0 or self.settler.backlog > 0 or not self.quarantine.is_open

    @property
    def handed_back(self) -> int:
        """How many jobs were handed back."""
        return sum(executor.handed_back for executor in self.executors)

    @property
    def finished(self) -> int:
        """How many attempts ended of themselves."""
        return sum(executor.finished for executor in self.executors)

    @property
    def slots(self) -> int:
        """How many attempts may run at once, in all executors together."""
        return sum(executor.slots for executor in self.executors)

    def watching(self, *, is_scraped: bool) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the loops, by name, that look at the whole queue for somebody: for a scrape, or for the hooks."""
        loops: dict[str, Callable[[], Awaitable[None]]] = {
            f"alerts of {one.hook.name} ({one.hook.what})": one.run for one in self.tellers
        }
        if is_scraped or any(isinstance(one.hook, BacklogHook) for one in self.tellers):
            loops["lookout"] = self.lookout.run
        return loops

    def failing(self) -> list[str]:
        """Return what keeps this worker from working. May be asked from the side thread."""
        return self.vitals.failing() if self.heartbeat.is_registered else ["registration"]

    def end_intake(self) -> None:
        """Hand back what waits for a slot or to run alone. The loops of the intake have ended, and are not stuck."""
        self.quarantine.hand_back_all()
        for executor in self.executors:
            executor.hand_back_waiting()
        for pulse in (*(claimer.pulse for claimer in self.claimers), self.quarantine.pulse):
            pulse.rest()

    def in_hand(self) -> list[InHand]:
        """Everything that this worker holds: what runs, what waits to run alone, what is not settled yet.

        May be asked from the side thread.
        """
        running = [one for executor in self.executors for one in executor.in_hand()]
        waiting = [InHand(claimed) for claimed in self.quarantine.in_hand() + self.settler.unwritten]
        return running + waiting

    def _ids_in_hand(self) -> list[JobId]:
        return [one.claimed.id for one in self.in_hand()] + self.settler.given_up

    def _emit(self, event: Event) -> None:
        if isinstance(event, AttemptsSettled):
            self.tally.add(event.counts)
        self.lost += isinstance(event, LeaseLost)
        self._said_once(event)

    # -- what they tell each other -------------------------------------------------------------------

    def _wake(self, queue: str | None) -> None:
        for claimer in self.claimers:
            if queue is None or claimer.queue == queue:
                claimer.wake(WakeUp.RECONNECT if queue is None else WakeUp.NOTIFICATION)

    def _wake_later(self, delay_s: float) -> None:
        """Wake the claim loops when what was reaped is ready, without waiting for the poll."""

        def wake_all() -> None:
            for claimer in self.claimers:
                claimer.wake(WakeUp.REAP)

        asyncio.get_running_loop().call_later(delay_s, wake_all)

    def _lose(self, lost: Sequence[Owned]) -> None:
        fences = {one.id: one.fence for one in lost}
        for executor in self.executors:
            executor.lose(fences)

    def _interrupt_lapsed(self, first: bool) -> None:
        running, cancelled = self.running, []
        for executor in self.executors:
            executor.hand_back_waiting()
            cancelled += [f"{one.kind} {one.id}" for one in executor.interrupt_all(LEASE_LAPSED)]
        if first or cancelled:
            self._emit(LeaseLapsed(running, cancelled))

    # -- the end -------------------------------------------------------------------------------------

    @property
    def is_stuck(self) -> bool:
        """Whether a handler runs on that nothing can stop."""
        return any(executor.runs_anything for executor in self.executors)

    async def close(self) -> None:
        """Close the connections of the event loop; the heartbeat's belongs to the side thread."""
        for role, link in self.links.items():
            if role != "heartbeat":
                await link.close()


def _by_class(queue: Queue) -> list[tuple[str, dict[str, Handler[..., object]]]]:
    """Return the handlers by class of executor. Each queue has an executor of each: all handlers, wherever at home."""
    by_class: dict[str, dict[str, Handler[..., object]]] = {}
    for handler in queue.handlers.values():
        by_class.setdefault("async" if handler.signature.is_async else "thread", {})[handler.kind] = handler
    return sorted(by_class.items())


def _introduce(worker_id: WorkerId, queue: Queue, settings: WorkerSettings) -> WorkerRow:
    by_queue = {name: settings.slots_of(name) for name in queue.served}
    return WorkerRow(
        worker_id=worker_id,
        pid=os.getpid(),
        host=socket.gethostname(),
        version=version("jobq"),
        queues=queue.served,
        kinds=sorted(queue.handlers),
        slots=[Slots(sorted(handlers), by_queue) for _, handlers in _by_class(queue)],
    )
