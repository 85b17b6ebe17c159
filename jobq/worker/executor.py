"""Runs attempts: one asyncio task each, owned here from its start until its outcome is with the settler.

A task a job and one shared sweep of deadlines cost a tenth of a task group and a time-out a job. Whatever a
handler raises ends inside its task. An attempt that was cancelled counts as what it was cancelled for, even if
the handler swallows the cancellation and returns: only it knows how far it came, and at least once is the promise.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import cast

import anyio

from jobq.core.failure import Failure
from jobq.core.job import ClaimedJob, JobId
from jobq.core.outcomes import (
    DONE,
    Ended,
    Interrupted,
    Raised,
    Released,
    Returned,
    Snooze,
    TimedOut,
    Unfit,
    before_start,
    judge,
    must_run_alone,
    tell_failure,
)
from jobq.errors import PayloadError
from jobq.handle import Job, Scope
from jobq.registration import Handler, Middleware
from jobq.telemetry.context import job_of_context
from jobq.telemetry.events import AttemptOverran, Emit, FailedAfterCompletion, LeaseLost
from jobq.worker.attempt import Attempt, Lost, Trace
from jobq.worker.in_hand import InHand
from jobq.worker.in_thread import call_in_thread
from jobq.worker.settler import Settlement, Settler, tell

MAX_WAIT_S = 0.5
"""What was claimed ahead and finds no slot for so long is handed back: the jobs in front turned out to be slow."""


class Executor:
    """The slots of one queue for handlers of one class: `async` on the event loop, `thread` for `def` handlers.

    What its claim loop has taken *ahead* waits here for a slot, while all slots are taken.
    """

    def __init__(
        self,
        *,
        name: str,
        slots: int,
        handlers: Mapping[str, Handler[..., object]],
        middleware: Sequence[Middleware],
        scope: Scope,
        context: Context,
        settler: Settler,
        cancel_grace_s: float,
        emit: Emit,
        on_blocked_thread: Callable[[], None],
        on_suspect: Callable[[Executor, ClaimedJob], None],
        trace: Trace | None = None,
    ) -> None:
        self.name = name
        self.slots = slots
        self.kinds = sorted(handlers)
        self.started = 0
        self.finished = 0
        self.timed_out = 0
        self.handed_back = 0
        self.ahead = 0
        self._handlers = handlers
        self._middleware = tuple(middleware)
        self._scope = scope
        self._context = context
        self._settler = settler
        self._cancel_grace_s = cancel_grace_s
        self._emit = emit
        self._on_blocked_thread = on_blocked_thread
        self._on_suspect = on_suspect
        self._trace = trace
        self._running: set[Attempt] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[JobId, ClaimedJob] = {}
        self._waited_since = 0.0
        self._by_id: dict[JobId, Attempt] = {}
        self._given_up: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._some = asyncio.Event()
        self._threads = ThreadPoolExecutor(slots, f"jobq-{name}") if name == "thread" else None

    # -- slots ---------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more jobs may be claimed: for the free slots, and *ahead* to wait for those that will be."""
        return self.slots + self.ahead - len(self._running) - len(self._waiting)

    @property
    def running(self) -> int:
        """How many attempts hold a slot."""
        return len(self._running)

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts that hold a slot. May be asked from another thread."""
        return list(self._running)

    @property
    def runs_anything(self) -> bool:
        """Whether a handler runs here or is about to, also one that was given up and holds no slot any more."""
        return bool(self._running or self._waiting) or any(not task.done() for task in self._given_up)

    async def wait_room(self) -> None:
        """Wait until a claim is worth its while: for a free slot, or for half of what may be claimed ahead."""
        while self.room < max(1, self.ahead // 2):
            self._changed.clear()
            await self._changed.wait()

    async def wait_idle(self) -> None:
        """Wait until no attempt holds a slot that it may give back; a thread past its time-out is not waited for."""
        while any(not attempt.overran for attempt in self._running):
            self._changed.clear()
            await self._changed.wait()

    # -- starting ------------------------------------------------------------------------------------

    def start(self, claimed: Sequence[ClaimedJob]) -> None:
        """Take claimed jobs over. Those that there are slots for start when the caller awaits something.

        So the next claim is sent first, and is under way while they start.
        """
        self.started += len(claimed)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        for one in claimed:
            self._supersede(one.id)
            policy = self._handlers[one.kind].policy
            if must_run_alone(one, policy) and before_start(one, policy) is None:
                self._on_suspect(self, one)
            else:
                if not self._waiting:
                    self._waited_since = time.monotonic()
                self._waiting[one.id] = one
        self._loop.call_soon(self._start_waiting)

    def start_one(self, claimed: ClaimedJob) -> None:
        """Start an attempt, whatever is known about its job."""
        handler = self._handlers[claimed.kind]
        attempt = self._by_id[claimed.id] = Attempt(claimed, handler, Job(claimed, self._scope, handler.timeout_s))
        self._running.add(attempt)
        self._some.set()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        attempt.task = self._loop.create_task(self._run(attempt), context=self._context.copy())

    def _supersede(self, job_id: JobId) -> None:
        """Lose what is here of a job that was just claimed: somebody took it back, so this is not its owner."""
        if running := self._by_id.get(job_id):
            self._lose(running)
        if waiting := self._waiting.pop(job_id, None):
            self._emit(LeaseLost(waiting.id, waiting.kind, waiting.attempt, waiting.queue))

    def hand_back(self, claimed: Sequence[ClaimedJob], *, delay_s: float = 0.0) -> None:
        """Release claimed jobs that were not started."""
        self.handed_back += len(claimed)
        for one in claimed:
            self._settler.put(Settlement(one, Released(delay_s), 0))

    def hand_back_waiting(self) -> None:
        """Release what waits for a slot: somebody else may have one."""
        waiting, self._waiting = list(self._waiting.values()), {}
        self.hand_back(waiting)
        self._changed.set()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            self._waited_since = time.monotonic()
            self.start_one(self._waiting.pop(next(iter(self._waiting))))

    async def _run(self, attempt: Attempt) -> None:
        attempt.entered = True
        job_of_context.set(attempt.claimed)
        ended: Ended
        if attempt.interruption is not None:
            ended = Raised(asyncio.CancelledError())
        elif (refusal := before_start(attempt.claimed, attempt.handler.policy)) is not None:
            ended = refusal
        else:
            try:
                parameters = attempt.handler.decode(attempt.claimed.payload)
            except PayloadError as error:
                ended = Unfit(error)
            else:
                try:
                    ended = Returned(await self._call(attempt, parameters))
                except BaseException as error:
                    ended = Raised(error)
        self._end(attempt, ended)
        del ended  # An error's traceback refers to this frame: without this it would live until the next collection.

    def _call(self, attempt: Attempt, parameters: dict[str, object]) -> Awaitable[object]:
        handler, job = attempt.handler, attempt.job
        trace = self._trace if attempt.claimed.headers is not None else None
        if self._threads is None and not self._middleware and trace is None:
            return cast(Awaitable[object], handler.call(job, parameters))  # the usual case, without its closures

        def innermost() -> Awaitable[object]:
            if self._threads is None:
                return cast(Awaitable[object], handler.call(job, parameters))
            return call_in_thread(self._threads, attempt, parameters)

        call = innermost
        for middleware in reversed(self._middleware):
            call = _wrapped(middleware, job, call)
        return call() if trace is None else trace(attempt.claimed, handler.policy, call)

    # -- ending --------------------------------------------------------------------------------------

    def _end(self, attempt: Attempt, ended: Ended) -> None:
        claimed = attempt.claimed
        if attempt not in self._running:
            return  # It overran its cancellation and was settled without it.
        self._running.remove(attempt)
        self._start_waiting()
        self._changed.set()
        if self._by_id.get(claimed.id) is attempt:
            del self._by_id[claimed.id]
        if type(attempt.interruption) is Lost:
            return
        if attempt.interruption is not None and not (isinstance(ended, Returned) and isinstance(ended.answer, Snooze)):
            ended = attempt.interruption
            self.timed_out += type(ended) is TimedOut  # of those that count as finished
        run_ms = round((time.monotonic() - attempt.started) * 1000)
        if attempt.job.completed:
            self.finished += 1
            tell(self._emit, [Settlement(claimed, DONE, run_ms)], {claimed.id}, took_s=None)
            if isinstance(ended, Raised):
                failure = tell_failure(claimed, ended.error, attempt.handler.policy)
                self._emit(FailedAfterCompletion(claimed.id, claimed.kind, failure.type, failure.message))
        else:
            outcome = judge(claimed, ended, attempt.handler.policy, draw=random.random())
            if type(ended) is Interrupted:
                self.handed_back += 1
            else:
                self.finished += 1
            self._settler.put(Settlement(claimed, outcome, run_ms))

    # -- leases --------------------------------------------------------------------------------------

    def in_hand(self) -> list[InHand]:
        """Return the attempts that run here, and the jobs that wait for a slot. May be asked from another thread."""
        waiting = [InHand(claimed) for claimed in list(self._waiting.values())]
        return waiting + [
            InHand(
                claimed=attempt.claimed,
                policy=attempt.handler.policy,
                timeout_s=attempt.handler.timeout_s,
                overdue_at=attempt.deadline + self._cancel_grace_s if self._threads is None else float("inf"),
                task=attempt.task,
                module=attempt.handler.__module__,
            )
            for attempt in list(self._running)
        ]

    def lose(self, lost: Mapping[JobId, int]) -> None:
        """Cancel the attempts that no longer own their job (id and fence); nothing is written about them."""
        for claimed in list(self._waiting.values()):
            if lost.get(claimed.id) == claimed.fence:
                del self._waiting[claimed.id]
                self._emit(LeaseLost(claimed.id, claimed.kind, claimed.attempt, claimed.queue))
        for attempt in list(self._running):
            if lost.get(attempt.claimed.id) == attempt.claimed.fence:
                self._lose(attempt)

    def _lose(self, attempt: Attempt) -> None:
        if isinstance(attempt.interruption, Lost):
            return
        claimed = attempt.claimed
        self._emit(LeaseLost(claimed.id, claimed.kind, claimed.attempt, claimed.queue))
        if attempt.interruption is None and self._threads is None:
            self._cancel(attempt, time.monotonic())
        attempt.interruption = Lost()

    # -- deadlines and stopping ----------------------------------------------------------------------

    async def sweep(self, every_s: float) -> None:
        """Cancel attempts past their deadline, and give up on those that ignore it, until cancelled."""
        while True:
            if not self._running:
                self._some.clear()
                await self._some.wait()
            await anyio.sleep(every_s)
            now = time.monotonic()
            if self._waiting and now - self._waited_since > MAX_WAIT_S:
                self.hand_back_waiting()
            for attempt in list(self._running):
                if attempt.interruption is None or self._threads is not None:
                    if now >= attempt.deadline:
                        self._interrupt(attempt, TimedOut(attempt.handler.timeout_s), now)
                elif not attempt.overran and now >= attempt.cancelled_at + self._cancel_grace_s:
                    self._give_up(attempt)

    def interrupt_all(self, reason: Failure) -> list[ClaimedJob]:
        """Cancel every running attempt; they are released, attempt returned, *reason* on record. Returns their jobs.

        Threads cannot be cancelled: they run on, and are not among them.
        """
        now = time.monotonic()
        interrupted = [attempt for attempt in self._running if attempt.interruption is None]
        for attempt in interrupted:
            self._interrupt(attempt, Interrupted(reason, started=attempt.entered), now)
        return [attempt.claimed for attempt in interrupted if attempt.interruption is not None]

    async def end_rest(self, limit_s: float) -> None:
        """Cancel what still runs, settling nothing, and wait for it at most *limit_s* seconds: the worker is gone."""
        self.hand_back_waiting()  # or each attempt that ends here would start another
        tasks = [attempt.task for attempt in self._running if attempt.task is not None and self._threads is None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def report_rest(self) -> None:
        """Name the attempts that outlast the stop: they are left to their lease."""
        for attempt in self._running:
            if not attempt.overran:
                self._report_overrun(attempt)

    def _interrupt(self, attempt: Attempt, what: TimedOut | Interrupted, now: float) -> None:
        if self._threads is not None:
            # A thread cannot be stopped: it keeps its slot and its lease, and the worker ends without it.
            if isinstance(what, TimedOut) and not attempt.overran:
                self._report_overrun(attempt)
                self._changed.set()
                self._on_blocked_thread()
            return
        attempt.interruption = what
        self._cancel(attempt, now)

    def _cancel(self, attempt: Attempt, now: float) -> None:
        attempt.cancelled_at = now
        if attempt.entered:
            # A task that is cancelled before its first step never runs at all, and would never end its attempt.
            assert attempt.task is not None
            attempt.task.cancel()

    def _give_up(self, attempt: Attempt) -> None:
        assert attempt.interruption is not None
        assert attempt.task is not None
        self._report_overrun(attempt)
        self._changed.set()
        if isinstance(attempt.interruption, Interrupted):
            return  # Handed back while it runs on, it would run twice at once: it is left to its lease.
        self._given_up = [task for task in self._given_up if not task.done()] + [attempt.task]
        self._end(attempt, Raised(asyncio.CancelledError()))

    def _report_overrun(self, attempt: Attempt) -> None:
        attempt.overran = True
        ran_s = time.monotonic() - attempt.started
        self._emit(AttemptOverran(attempt.claimed.id, attempt.claimed.kind, ran_s, self._threads is not None))


def _wrapped(
    middleware: Middleware, job: Job, call_next: Callable[[], Awaitable[object]]
) -> Callable[[], Awaitable[object]]:
    return lambda: middleware(job, call_next)
