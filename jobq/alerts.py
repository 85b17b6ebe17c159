"""What `@queue.on_dead` and `@queue.on_backlog` make of a function: a hook, which a worker calls once an incident.

A hook goes by its function's name, `module.function`, in all workers: that name is what the database remembers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import ClassVar, TypeVar, overload

import msgspec

from jobq.core.alert import BacklogAlert, DeadAlert
from jobq.core.names import kind_fault, queue_fault, shown
from jobq.errors import HandlerError

TellDead = TypeVar("TellDead", bound=Callable[[DeadAlert], Awaitable[None]])
TellBacklog = TypeVar("TellBacklog", bound=Callable[[BacklogAlert], Awaitable[None]])

QUIET_S = 600.0

LEAST_QUIET_S = 120.0
"""Workers may look as rarely as once a minute, and what lasts must be seen twice within the quiet period."""

LONGEST_S = 86_400.0
"""A day: what is remembered of an incident is forgotten a day after it was seen last."""


class DeadHook(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is told of dead letters, of these kinds or of all (None)."""

    what: ClassVar[str] = "dead"
    name: str
    tell: Callable[[DeadAlert], Awaitable[None]]
    kinds: tuple[str, ...] | None
    quiet_s: float


class BacklogHook(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is told when a ready job has waited for *age_s*, in this queue or in any (None)."""

    what: ClassVar[str] = "backlog"
    name: str
    tell: Callable[[BacklogAlert], Awaitable[None]]
    queue: str | None
    age_s: float
    quiet_s: float


Hook = DeadHook | BacklogHook


class Hooks:
    """The side of a `Queue` that registers hooks."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []

    @overload
    def on_dead(self, function: TellDead, /) -> TellDead: ...
    @overload
    def on_dead(
        self, function: None = None, /, *, kinds: Iterable[str] | None = None, quiet: float | timedelta = QUIET_S
    ) -> Callable[[TellDead], TellDead]: ...
    def on_dead(
        self,
        function: TellDead | None = None,
        /,
        *,
        kinds: Iterable[str] | None = None,
        quiet: float | timedelta = QUIET_S,
    ) -> TellDead | Callable[[TellDead], TellDead]:
        """Register `async def function(alert: DeadAlert)`, to be called when jobs of a kind begin to die.

        Once for each kind, by one of all workers, and again after none of the kind has died for *quiet* (seconds or a
        `timedelta`: two minutes to a day, ten minutes by default). *kinds* are those that it is about (None: all). A
        call that raises, takes more than 30 s or ends with its worker is made again: at least once. Letters that died
        before a worker with this hook first started are not told. Raises `HandlerError` for what cannot be.

            @queue.on_dead
            async def tell(alert: DeadAlert) -> None: ...
        """

        def register(function: TellDead) -> TellDead:
            name = _name_of(function, "on_dead", "DeadAlert")
            hook = DeadHook(
                name=name,
                tell=function,
                kinds=_checked_kinds(kinds, name),
                quiet_s=_quiet_s(quiet, f"on_dead {name}"),
            )
            self._add(hook)
            return function

        return register if function is None else register(function)

    def on_backlog(
        self, *, age: float | timedelta, queue: str | None = None, quiet: float | timedelta = QUIET_S
    ) -> Callable[[TellBacklog], TellBacklog]:
        """Register `async def function(alert: BacklogAlert)`, to be called when a queue falls behind.

        That is when its oldest ready job has been ready for *age* (seconds or a `timedelta`, at most a day); workers
        look about every 15 s. Once for each queue, or for *queue* only, by one of all workers, and again after it was
        not behind for *quiet*. The rest is as in `on_dead`. Raises `HandlerError` for what cannot be.

            @queue.on_backlog(age=60.0)
            async def tell(alert: BacklogAlert) -> None: ...
        """

        def register(function: TellBacklog) -> TellBacklog:
            name = _name_of(function, "on_backlog", "BacklogAlert")
            where = f"on_backlog {name}"
            if queue is not None and (fault := queue_fault(queue)):
                raise HandlerError(f"{where}: {fault}")
            if (age_s := _seconds(age)) is None:
                raise HandlerError(
                    f"{where}: age is {shown(age)}; pass seconds or a timedelta, more than 0 and at most a day"
                )
            self._add(BacklogHook(name=name, tell=function, queue=queue, age_s=age_s, quiet_s=_quiet_s(quiet, where)))
            return function

        return register

    def _add(self, hook: Hook) -> None:
        if any((one.name, one.what) == (hook.name, hook.what) for one in self.hooks):
            raise HandlerError(
                f"on_{hook.what} {hook.name} is registered twice, and a hook is remembered by its name: give one of the"
                " functions another"
            )
        self.hooks.append(hook)


def _name_of(function: object, decorator: str, alert: str) -> str:
    """Return the name of a function that can be a hook. Raises `HandlerError` for any other."""
    wanted = f"write `async def tell(alert: {alert}) -> None`"
    if not inspect.iscoroutinefunction(function) or not hasattr(function, "__qualname__"):
        raise HandlerError(f"{decorator} {shown(function)} is no `async def` function: {wanted}")
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise HandlerError(f"{decorator} {name} cannot be called with one alert ({error}): {wanted}") from None
    return name


def _checked_kinds(kinds: Iterable[str] | None, name: str) -> tuple[str, ...] | None:
    if kinds is None:
        return None
    if isinstance(kinds, str) or not isinstance(kinds, tuple | list | set | frozenset) or not kinds:
        raise HandlerError(
            f"on_dead {name}: kinds is {shown(kinds)}; pass a tuple of names, such as ('send_receipt',), or leave it"
            " out for all kinds"
        )
    for kind in kinds:
        if fault := kind_fault(kind):
            raise HandlerError(f"on_dead {name}: {fault}")
    return tuple(sorted(kinds))


def _quiet_s(quiet: object, where: str) -> float:
    quiet_s = _seconds(quiet)
    if quiet_s is None or quiet_s < LEAST_QUIET_S:
        raise HandlerError(
            f"{where}: quiet is {shown(quiet)}; pass seconds or a timedelta, two minutes at least and at most a day"
        )
    return quiet_s


def _seconds(stated: object) -> float | None:
    """Return a duration in seconds, or None if it is none of more than nothing and at most a day."""
    seconds = stated.total_seconds() if isinstance(stated, timedelta) else stated
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_S:
        return None
    return float(seconds)
