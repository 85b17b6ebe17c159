"""`Queue`: register handlers, enqueue jobs, redrive dead letters. Creating one opens nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Self, cast

from jobq.alerts import Hooks
from jobq.core.enqueue import answer_seconds, make_row
from jobq.core.job import DEFAULT_QUEUE, Enqueued, JobId, JobRow, NewJob
from jobq.core.names import kind_fault, queue_fault, schema_fault, shown
from jobq.core.payload import encode
from jobq.core.retry import Backoff
from jobq.db.pools import Pools
from jobq.db.reports import DeadFilter
from jobq.db.store import Store
from jobq.dead_letters import DeadLetters, RedriveReport
from jobq.errors import (
    ConfigurationError,
    EnqueueError,
    HandlerError,
)
from jobq.handle import Resources
from jobq.producer import add_jobs, check_connection, warn_if_large
from jobq.recurring import Recurring
from jobq.registration import Handler, Middleware, TaskDecorator, make_handler
from jobq.settings import DEFAULT_SCHEMA, Access, Route, find_dsn, find_route

if TYPE_CHECKING:
    from asyncpg import Pool, Record

    from jobq.db.connect import AnyConnection
    from jobq.telemetry.tracing import Tracing

Lifespan = Callable[[], AsyncIterator[object]]


SLOWEST_BULK = 100
"""Jobs a second at which a bulk enqueue on the own pool still counts as alive."""


class Queue(Hooks):
    """The jobs of one schema in one database, and the handlers of this process.

    *dsn* is looked for in `JOBQ_DSN` and `DATABASE_URL` when it is first needed. Behind a pooler in transaction mode
    set *prepared_statements* to False (None: `JOBQ_PREPARED_STATEMENTS`, else True), and *listen_dsn* (None:
    `JOBQ_LISTEN_DSN`, else *dsn*) to a DSN that goes around it: workers LISTEN there. *queues* sets the concurrency of
    single queues (jobs at once in each worker, 100 if not stated), and names those that no handler is registered in.
    With *strict*, every handler has to say what a duplicate run does. *tracing* makes spans of enqueues and runs
    (`jobq.telemetry.tracing`). Raises `ConfigurationError` for names and numbers that cannot be.

        queue = Queue(queues={"mail": 20, "backfill": 2})

        @queue.task(kind="send_receipt", queue="mail")
        async def send_receipt(order_id: int) -> None: ...
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = DEFAULT_SCHEMA,
        listen_dsn: str | None = None,
        prepared_statements: bool | None = None,
        queues: Mapping[str, int] | None = None,
        strict: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__()
        if fault := schema_fault(schema):
            raise ConfigurationError(fault)
        for name in queues or {}:
            if fault := queue_fault(name):
                raise ConfigurationError(fault)
        self.schema = schema
        self.slots = dict(queues or {})
        self.strict = strict
        self.tracing = tracing
        self.handlers: dict[str, Handler[..., object]] = {}
        self.middlewares: list[Middleware] = []
        self.access = Access(dsn=dsn, listen_dsn=listen_dsn, prepared_statements=prepared_statements)
        self._lifespan: Lifespan | None = None
        self._store = Store(schema)
        self._pools = Pools(lambda: self.route)
        self.recurring = Recurring(schema, self._pools, self.handlers, self.job)
        """`@queue.recurring("0 9 * * mon-fri")` declares what its ticks enqueue; its methods do so at run time."""

    @property
    def dsn(self) -> str:
        """The DSN in use. Raises `ConfigurationError` if none is given, here or in the environment."""
        return find_dsn(self.access.dsn, os.environ)

    @property
    def route(self) -> Route:
        """The way to the database. Raises `ConfigurationError` if it is not known, or stated wrongly."""
        return find_route(self.access, os.environ)

    @property
    def served(self) -> list[str]:
        """The queues that a worker of this process serves. In each it takes every kind that has a handler here."""
        return sorted({handler.queue for handler in self.handlers.values()} | self.slots.keys())

    def use_dsn(self, dsn: str) -> None:
        """Use *dsn* from now on, also to LISTEN: for an embedded server, and for tests."""
        checked = find_dsn(dsn, os.environ)
        self.access = Access(dsn=checked, listen_dsn=checked).over(self.access)

    # -- registration --------------------------------------------------------------------------------

    def task(
        self,
        kind: str,
        *,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int = 10,
        max_crashes: int = 3,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
        backoff: Backoff | None = None,
        timeout: float | timedelta = 300.0,
        on_duplicate: str | None = None,
        redact: tuple[str, ...] = (),
    ) -> TaskDecorator:
        """Register the decorated function, `async def` or `def` (run in a thread), as the handler of *kind*.

        *max_attempts* counts all starts; a job that kills its worker *max_crashes* times, the last time while it ran
        alone, is a dead letter whatever is left of them. An `Exception` outside *retry_on* is permanent: a dead letter
        at once.
        *backoff* is the delay between attempts (base 2 s, cap 1 h, full jitter). *timeout*, in seconds, bounds each
        run; a time-out is retried. *on_duplicate* says, for people, what a second run does. *redact* names fields of
        the payload, `("token", "card.number")`, whose values are covered in logs, recorded errors and what the command
        line shows; the handler gets them whole.

        Raises `HandlerError` for a kind that is taken, for options out of range, and for a signature that cannot be
        filled from JSON.
        """

        def register(function: Callable[..., object]) -> Handler[..., object]:
            handler = make_handler(
                function,
                kind=kind,
                queue=queue,
                max_attempts=max_attempts,
                max_crashes=max_crashes,
                retry_on=retry_on,
                backoff=backoff or Backoff(),
                timeout=timeout,
                on_duplicate=on_duplicate,
                redact=redact,
            )
            if earlier := self.handlers.get(kind):
                raise HandlerError(
                    f"kind {kind!r} is registered twice: by {earlier.signature.function} and by"
                    f" {handler.signature.function}; give one of them another kind"
                )
            if self.strict and on_duplicate is None:
                raise HandlerError(
                    f"kind {kind!r} does not say what a duplicate run does, and this queue is strict: add"
                    " on_duplicate='...'; every job runs twice one day"
                )
            self.handlers[kind] = handler
            return handler

        return cast(TaskDecorator, register)

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Register the async generator that opens what handlers need, and closes it after its `yield`.

        It runs once in each worker, around all jobs, and yields one resource or a tuple of them; handlers get them
        by type, `job.resource(httpx.AsyncClient)`. Context variables that it sets are seen by every job.

            @queue.lifespan
            async def resources():
                async with httpx.AsyncClient() as client:
                    yield client
        """
        if self._lifespan is not None:
            raise HandlerError("lifespan is registered twice; open everything in one function and yield a tuple")
        self._lifespan = function
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Register `async def function(job, call_next)` around every handler; the first registered is outermost."""
        self.middlewares.append(function)
        return function

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[Resources]:
        """Run the lifespan: open the resources, and close them at the end."""
        if self._lifespan is None:
            yield Resources()
            return
        async with asynccontextmanager(self._lifespan)() as opened:
            match opened:
                case None:
                    yield Resources()
                case tuple() | list():
                    yield Resources(opened)
                case _:
                    yield Resources([opened])

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(
        self,
        job: NewJob | str,
        payload: Mapping[str, object] | None = None,
        /,
        *,
        conn: AnyConnection | None = None,
        autocommit: bool = False,
        queue: str | None = None,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        idempotency_for: timedelta | float = 86_400.0,
        max_attempts: int | None = None,
        notify: bool = True,
    ) -> Enqueued:
        """Add a job: `handler.bind(...)`, or a kind's name with its payload.

        With *conn*, an asyncpg connection inside a transaction, the job exists exactly if that transaction commits;
        *autocommit* allows one outside. Without, it is committed at once on this queue's own pool.

        *run_at* is a `datetime` with a time zone, or a `timedelta` from the database's now; in the past it means now.
        *priority* is 0 (first) to 9. While *idempotency_key* answers (*idempotency_for*, a day by default, and in any
        case while the job lives), another enqueue of the same kind and key adds nothing and returns that job.
        *notify* false spares the wake-up of sleeping workers, for databases and transactions that refuse NOTIFY.

        Raises `EnqueueError` (`PayloadError`, `UnknownKindError`, `NotInTransactionError`) before any SQL, so that
        the caller's transaction stays usable; `DatabaseError` or `SchemaError` if PostgreSQL refuses. On the own pool
        `DatabaseUnavailableError` after ten seconds without an answer: then the job may exist all the same.
        """
        new = self._new_job(job, payload).with_options(
            queue=queue,
            run_at=run_at,
            priority=priority,
            idempotency_key=idempotency_key,
            max_attempts=max_attempts,
        )
        row = make_row(new, now=datetime.now(UTC))
        answers_for_s = answer_seconds(idempotency_for)
        warn_if_large([row])
        if conn is not None:
            check_connection(conn, autocommit)
        add = partial(self._add_one, conn, row, answers_for_s, notify)
        return await (add(None) if self.tracing is None else self.tracing.enqueue([row], add))

    async def _add_one(
        self, conn: AnyConnection | None, row: JobRow, answers_for_s: float, notify: bool, headers: str | None
    ) -> Enqueued:
        if conn is not None:
            return await self._store.enqueue_job(conn, row, answers_for_s=answers_for_s, notify=notify, headers=headers)
        async with self._pools.lend() as own:
            return await self._store.enqueue_job(own, row, answers_for_s=answers_for_s, notify=notify, headers=headers)

    async def enqueue_many(
        self,
        jobs: Iterable[NewJob],
        /,
        *,
        conn: AnyConnection | None = None,
        autocommit: bool = False,
        queue: str | None = None,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        idempotency_for: timedelta | float = 86_400.0,
        max_attempts: int | None = None,
        notify: bool = True,
    ) -> list[Enqueued]:
        """Add many jobs, all or none, and return what became of each, in the order given.

        *queue*, *run_at*, *priority* and *max_attempts* hold for jobs that do not state their own with
        `bind(...).with_options(...)`, where idempotency keys go too. The rest is as in `enqueue`; an `EnqueueError`
        names the job's position.
        """
        now = datetime.now(UTC)
        rows = []
        for position, job in enumerate(jobs):
            try:
                new = self._new_job(job, None).with_options(
                    queue=queue, run_at=run_at, priority=priority, max_attempts=max_attempts
                )
                rows.append(make_row(new, now=now))
            except EnqueueError as error:
                raise error.at(position) from None
        answers_for_s = answer_seconds(idempotency_for)
        warn_if_large(rows)
        if conn is not None:
            check_connection(conn, autocommit)

        async def add(headers: str | None) -> list[Enqueued]:
            more_s = len(rows) / SLOWEST_BULK
            async with (
                self._pools.lend(more_s=more_s) if conn is None else nullcontext(conn) as used,
                used.transaction() if conn is None or autocommit else nullcontext(),
            ):
                return await add_jobs(
                    self._store, used, rows, answers_for_s=answers_for_s, notify=notify, headers=headers
                )

        return await (add(None) if self.tracing is None or not rows else self.tracing.enqueue(rows, add))

    def job(self, kind: str, payload: Mapping[str, object] | None = None) -> NewJob:
        """Return a job by its kind's name, for `enqueue_many`: what `bind` does where the handler is at hand.

        Raises `PayloadError` as `bind` does; a kind that is not registered here has only its JSON checked, and needs a
        queue stated.
        """
        if fault := kind_fault(kind):
            raise EnqueueError(fault, field="kind", value=kind)
        values = {} if payload is None else payload
        handler = self.handlers.get(kind)
        if handler is None:
            return NewJob(kind=kind, payload=encode(values, kind=kind), home=None)
        return NewJob(kind=kind, payload=handler.signature.encode(values), home=handler.queue)

    def _new_job(self, job: object, payload: Mapping[str, object] | None) -> NewJob:
        match job:
            case NewJob() if payload is None:
                return job
            case NewJob():
                message = "the payload is given twice: bind(...) holds it already; drop the second argument"
                raise EnqueueError(message, field="payload", value=payload)
            case str():
                return self.job(job, payload)
            case Handler():
                message = f"{job.__name__} is the handler, not a job: enqueue {job.__name__}.bind(...)"
                raise EnqueueError(message, field="job", value=job)
            case _:
                message = f"{shown(job)} is not a job: pass handler.bind(...), or a kind's name and its payload"
                raise EnqueueError(message, field="job", value=job)

    # -- dead letters --------------------------------------------------------------------------------

    async def redrive(
        self,
        *ids: JobId | int,
        kind: str | None = None,
        queue: str | None = None,
        fingerprint: str | None = None,
        older_than: timedelta | None = None,
        younger_than: timedelta | None = None,
    ) -> RedriveReport:
        """Make dead letters ready again, by id or by filter (all that is stated must match), on our own pool.

        They keep their id and their errors and start at attempt 1. One whose idempotency key a newer job holds stays
        and is reported in `held`. Ages count from the death. Raises `ConfigurationError` if nothing is stated.
        """
        wanted = DeadFilter(
            ids=tuple(JobId(one) for one in ids) or None,
            kind=kind,
            queue=queue,
            fingerprint=fingerprint,
            older_than_s=None if older_than is None else older_than.total_seconds(),
            younger_than_s=None if younger_than is None else younger_than.total_seconds(),
        )
        async with self._pools.lend(more_s=None) as conn:
            return await DeadLetters(self.schema).redrive(conn, wanted)

    # -- connections ---------------------------------------------------------------------------------

    async def pool(self) -> Pool[Record]:
        """Return this event loop's own pool, opened at first use: for enqueues without `conn` and for handlers."""
        return await self._pools.get()

    async def close(self) -> None:
        """Close this event loop's pool, if one was opened; the queue may be used again."""
        await self._pools.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
