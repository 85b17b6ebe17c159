"""What `@queue.task` makes of a function: a `Handler`, the function with its kind, its rules and `bind`.

It stays a plain function: calling it calls the function, so a unit test needs no queue.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

from jobq.core.handler import HandlerSignature, read_signature, redact_fault
from jobq.core.job import NewJob
from jobq.core.names import kind_fault, queue_fault, shown
from jobq.core.outcomes import RetryPolicy
from jobq.core.retry import Backoff
from jobq.errors import HandlerError
from jobq.handle import Job

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

Middleware = Callable[[Job, Callable[[], Awaitable[object]]], Awaitable[object]]
"""`async def middleware(job, call_next)`: runs around every handler, returns what `await call_next()` returns."""

MAX_TIMEOUT_S = 86_400.0
"""A day. A job that needs longer is a sequence of short ones, or its crash costs a day of work."""


class Handler(Generic[P, R]):
    """A registered function. *P* are its payload's parameters, without `job`; *R* is what it returns."""

    def __init__(
        self,
        function: Callable[..., R],
        signature: HandlerSignature,
        *,
        queue: str,
        policy: RetryPolicy,
        timeout_s: float,
        on_duplicate: str | None,
    ) -> None:
        self.function = function
        self.signature = signature
        self.kind = signature.kind
        self.queue = queue
        self.policy = policy
        self.timeout_s = timeout_s
        self.on_duplicate = on_duplicate
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return a job of this kind with these parameters, to be enqueued.

        Raises `PayloadError` if they do not fit the signature or cannot be stored.
        """
        return NewJob(kind=self.kind, payload=self.signature.bind_payload(*args, **kwargs), home=self.queue)

    def decode(self, payload: str) -> dict[str, object]:
        """Return the handler's parameters from a stored payload. Raises `PayloadError` if they do not fit."""
        return self.signature.decode(payload)

    def call(self, job: Job, parameters: dict[str, object]) -> R:
        """Call the function with decoded parameters."""
        if self.signature.takes_job:
            return self.function(job, **parameters)
        return self.function(**parameters)

    def __repr__(self) -> str:
        return f"<Handler {self.signature}>"


class PlainHandler(Handler[P, R]):
    """A handler that does not ask for its `Job`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)


class JobHandler(Handler[P, R]):
    """A handler whose first parameter is `job: Job`."""

    def __call__(self, job: Job, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(job, *args, **kwargs)


class TaskDecorator(Protocol):
    """What `@queue.task(...)` returns; it keeps the function's parameters for type checkers."""

    # What takes a Job first also fits the second overload: the first that fits decides, and that is meant.
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[Concatenate[Job, P], R], /
    ) -> JobHandler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainHandler[P, R]: ...


def make_handler(
    function: Callable[..., R],
    *,
    kind: str,
    queue: str,
    max_attempts: int,
    max_crashes: int,
    retry_on: type[BaseException] | tuple[type[BaseException], ...],
    backoff: Backoff,
    timeout: float | timedelta,
    on_duplicate: str | None,
    redact: tuple[str, ...],
) -> Handler[..., R]:
    """Check a registration and make its handler. Raises `HandlerError` with the value and the remedy."""
    if fault := kind_fault(kind) or queue_fault(queue):
        raise HandlerError(fault)
    where = f"kind {kind!r}"
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
        raise HandlerError(f"{where}: max_attempts is {max_attempts!r}; it counts all starts, so it is 1 or more")
    if isinstance(max_crashes, bool) or not isinstance(max_crashes, int) or max_crashes < 1:
        raise HandlerError(f"{where}: max_crashes is {max_crashes!r}; it counts killed workers, so it is 1 or more")
    classes = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if not classes or not all(isinstance(one, type) and issubclass(one, BaseException) for one in classes):
        raise HandlerError(
            f"{where}: retry_on is {shown(retry_on)}; pass an exception class or a tuple of them, or leave it out"
            " to retry every Exception (max_attempts=1 retries none)"
        )
    if not (_is_positive(backoff.base_s) and _is_positive(backoff.cap_s) and backoff.base_s <= backoff.cap_s):
        raise HandlerError(f"{where}: {backoff} needs 0 < base_s <= cap_s, both finite seconds")
    timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise HandlerError(
            f"{where}: timeout is {timeout!r}; every run is bounded: more than 0 seconds, at most a day"
            " (split longer work into several jobs)"
        )
    if on_duplicate is not None and (not isinstance(on_duplicate, str) or not on_duplicate.strip()):
        raise HandlerError(
            f"{where}: on_duplicate is {on_duplicate!r}; say what a second run does, such as"
            " 'harmless: the provider drops a repeated Message-Id'"
        )
    signature = read_signature(function, kind=kind, job_type=Job)
    if isinstance(redact, str) or not isinstance(redact, tuple | list | set | frozenset):
        raise HandlerError(f"{where}: redact is {shown(redact)}; pass a tuple of names, such as ('card_number',)")
    for path in redact:
        if fault := redact_fault(signature, path):
            raise HandlerError(f"{where}: redact={shown(path)} {fault}")
    names = tuple(sorted(redact))
    signature = msgspec.structs.replace(signature, redact=names)
    policy = RetryPolicy(
        max_attempts=max_attempts, max_crashes=max_crashes, retry_on=classes, backoff=backoff, redact=names
    )
    handler_class: type[Handler[..., R]] = JobHandler if signature.takes_job else PlainHandler
    return handler_class(
        function, signature, queue=queue, policy=policy, timeout_s=float(timeout_s), on_duplicate=on_duplicate
    )


def _is_positive(seconds: object) -> bool:
    return isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0
