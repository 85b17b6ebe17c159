"""An exception that misbehaves when it is described costs detail, never the outcome of the attempt."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import NoReturn

import pytest

from jobq.core.failure import describe
from tests.core.test_failure import assert_storable, fail, raised


def hostile() -> dict[str, BaseException]:
    """Return one exception for each way to misbehave when it is described."""

    class EvilText(str):
        __slots__ = ()

        def encode(self, *args: object) -> NoReturn:
            raise SystemExit

        replace = __format__ = __str__ = encode

    class EvilMeta(type):
        def __getattribute__(cls, name: str) -> NoReturn:
            raise SystemExit(name)

    class Nameless(Exception, metaclass=EvilMeta):
        pass

    class Locked(Exception):
        def __getattribute__(self, name: str) -> NoReturn:
            raise KeyboardInterrupt(name)

    class LyingGroup(ExceptionGroup[Exception]):
        exceptions = property(lambda self: fail(SystemExit))

    def made(**members: object) -> BaseException:
        kind: type[Exception] = types.new_class("Made", (Exception,), {}, lambda body: body.update(members))
        return raised(lambda: fail(kind("message")))

    def raising(error: type[BaseException]) -> property:
        return property(lambda self: fail(error))

    circle, other = ValueError("circle"), ValueError("other")
    circle.__cause__, other.__cause__ = other, circle
    chain = ValueError("0")
    for number in range(3_000):
        after = ValueError(number)
        after.__cause__, chain = chain, after
    return {
        "str raises": made(__str__=lambda self: fail(ValueError)),
        "str exits": made(__str__=lambda self: fail(SystemExit)),
        "str is no text": made(__str__=lambda self: 7),
        "str is evil": made(__str__=lambda self: EvilText("evil")),
        "str recurses": made(__str__=lambda self: str(self)),
        "repr raises": KeyError(made(__repr__=lambda self: fail(ValueError))),
        "class lies": made(__class__=raising(ValueError)),
        "notes raise": made(__notes__=raising(SystemExit)),
        "notes are no list": made(__notes__=7),
        "traceback raises": made(__traceback__=raising(SystemExit)),
        "traceback is none": made(__traceback__=7),
        "cause raises": made(__cause__=raising(KeyboardInterrupt)),
        "module is no text": made(__module__=7),
        "module is evil": made(__module__=EvilText("evil")),
        "nameless": Nameless("message"),
        "locked": Locked("message"),
        "group lies": LyingGroup("group", [ValueError("x")]),
        "circle": circle,
        "chain": chain,
        "syntax": SyntaxError("message", ("\0\ud800.py", 10**9, -5, "text\0")),
    }


HOSTILE = hostile()


@pytest.mark.parametrize("how", HOSTILE)
@pytest.mark.parametrize("wrap", [lambda error: error, lambda error: BaseExceptionGroup("g", [error, ValueError("x")])])
def test_describe_never_raises(how: str, wrap: Callable[[BaseException], BaseException]) -> None:
    """An exception that misbehaves costs detail, never the outcome; its type or message is still told."""
    failure = describe(wrap(HOSTILE[how]))

    assert_storable(failure)
    assert failure.type != "unknown"
    assert failure.traceback
