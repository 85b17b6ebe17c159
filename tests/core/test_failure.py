"""A failure is told as Python tells it, a group by its leaves, in bounded text that PostgreSQL stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.core.failure import MAX_ERROR_BYTES, MAX_MESSAGE_BYTES, Failure, describe, leaves, plain
from tests.core.strategies import FEW

ANY_TEXT = st.text(st.characters(), max_size=30)  # NUL and lone surrogates among it


def raised(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def fail(error: BaseException | type[BaseException]) -> NoReturn:
    raise error


def deep_group(depth: int, leaf: Exception) -> Exception:
    error = leaf
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


def assert_storable(failure: Failure) -> None:
    for text in (failure.type, failure.message, failure.traceback, failure.fingerprint):
        assert type(text) is str
        assert "\0" not in text
        assert len(text.encode()) <= MAX_ERROR_BYTES
    assert failure.type
    assert len(failure.message.encode()) <= MAX_MESSAGE_BYTES
    assert len(failure.fingerprint) == 12
    assert int(failure.fingerprint, 16) >= 0


# -- what it says ------------------------------------------------------------------------------------


def test_a_plain_exception_is_told_as_python_tells_it() -> None:
    """Type, message and the whole traceback, the cause included."""

    def handler() -> None:
        try:
            int("x")
        except ValueError as exc:
            raise LookupError("no such order") from exc

    failure = describe(raised(handler))

    assert (failure.type, failure.message) == ("LookupError", "no such order")
    assert "ValueError: invalid literal" in failure.traceback
    assert "direct cause" in failure.traceback
    assert failure.traceback.endswith("LookupError: no such order\n")


def test_types_of_other_modules_have_their_module() -> None:
    """Two libraries may both have an `Error`."""

    class Error(Exception):
        pass

    assert describe(Error()).type == f"{__name__}.{Error.__qualname__}"
    assert describe(asyncio.CancelledError()).type == "asyncio.exceptions.CancelledError"


def test_tracebacks_have_no_values_of_variables() -> None:
    """F107: a secret that a frame holds is not stored."""

    def handler(password: str) -> None:
        raise ValueError(len(password))

    failure = describe(raised(lambda: handler("hunter" + "2")))

    assert "hunter2" not in failure.traceback


def test_frames_of_the_worker_are_left_out() -> None:
    """The traceback begins with the handler, and keeps everything if there is no handler in it."""
    worker: dict[str, Any] = {"__name__": "jobq.worker.executor"}
    code = "def run(handler):\n  try: handler()\n  except Exception as exc: return exc"
    exec(compile(code, "executor.py", "exec"), worker)

    def handler() -> None:
        raise KeyError("k")

    of_handler, of_worker = describe(worker["run"](handler)), describe(worker["run"](None))

    assert "in handler" in of_handler.traceback
    assert "executor.py" not in of_handler.traceback
    assert "executor.py" in of_worker.traceback


# -- groups ------------------------------------------------------------------------------------------


def test_a_group_is_told_by_its_leaves() -> None:
    """F62: the message lists types and messages of the leaves, the traceback has the frames of each."""

    async def first() -> None:
        raise ValueError("x")

    async def second() -> None:
        raise KeyError("k")

    async def handler() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(first())
            group.create_task(second())

    failure = describe(raised(lambda: asyncio.run(handler())))

    assert failure.type == "ExceptionGroup"
    assert failure.message == "2 leaves: ValueError: x; KeyError: 'k'"
    assert "in first" in failure.traceback
    assert "in second" in failure.traceback


@pytest.mark.parametrize("depth", [1, 2, 5_000])
def test_a_group_of_one_is_its_leaf(depth: int) -> None:
    """F62: type, message and fingerprint are the leaf's, however deep it is wrapped."""
    leaf = ValueError("x")

    alone, wrapped = describe(leaf), describe(deep_group(depth, leaf))

    assert (wrapped.type, wrapped.message, wrapped.fingerprint) == (alone.type, alone.message, alone.fingerprint)
    assert "ValueError: x" in wrapped.traceback


@given(st.recursive(st.integers(0, 9), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=10))
@FEW
def test_leaves_are_flat_and_in_order(tree: Any) -> None:
    """Groups of groups become one list, in the order of reading."""
    order: list[BaseException] = []

    def build(node: Any) -> Exception:
        if isinstance(node, list):
            return ExceptionGroup("group", [build(child) for child in node])
        order.append(ValueError(node))
        return order[-1]  # type: ignore[return-value]

    assert leaves(build(tree)) == order


def test_a_leaf_that_is_held_twice_counts_once() -> None:
    """Otherwise sixty groups that hold the one before twice would have more leaves than atoms fit into a star."""
    leaf: Exception = ValueError("x")
    error = leaf
    for _ in range(60):
        error = ExceptionGroup("group", [error, error])

    assert leaves(error) == [leaf]
    assert describe(error).message == "x"


def test_a_wide_group_is_cut() -> None:
    """The first leaves and the number of the others are enough of a fan-out of ten thousand."""
    failure = describe(ExceptionGroup("group", [ValueError(number) for number in range(10_000)]))

    assert failure.message.startswith("10,000 leaves: ValueError: 0; ValueError: 1; ")
    assert failure.message.endswith("; and 9,990 more")
    assert "ValueError: 9\n" in failure.traceback
    assert_storable(failure)


# -- bounded and storable ----------------------------------------------------------------------------


@given(ANY_TEXT, st.sampled_from([1, 100, 5_000]), st.sampled_from([Exception, KeyError, OSError, SystemExit]))
@FEW
def test_any_message_can_be_stored(text: str, times: int, kind: type[BaseException]) -> None:
    """F55: whatever the message is made of, and however long it is."""
    error = kind(text * times)
    error.add_note(text)

    assert_storable(describe(error))
    assert_storable(plain(text * times, type=text or "x"))


def test_text_that_fits_is_kept_but_for_what_cannot_be_stored() -> None:
    """F55: U+0000 and lone surrogates become U+FFFD, all else stays."""
    assert describe(ValueError("é\0\ud800😀")).message == "é\ufffd\ufffd😀"


def test_head_and_tail_of_a_long_message_stay() -> None:
    """F64: ten megabytes become two kilobytes that tell how much is missing."""
    failure = describe(ValueError("begin" + "x" * 10_000_000 + "end"))

    assert failure.message.startswith("beginxxx")
    assert failure.message.endswith("xxxend")
    assert "[... 9,998,024 characters cut ...]" in failure.message
    assert failure.traceback.startswith("ValueError: begin")
    assert failure.traceback.endswith("end\n")
    assert_storable(failure)


def test_characters_are_not_split_by_the_cut() -> None:
    """The limit counts bytes, and what is left at the cut are whole characters."""
    failure = describe(ValueError("a" + "😀" * 2_000))

    head, told, tail = failure.message.split("\n")
    assert set(head) | set(tail) == set("a😀")
    assert told == "[... 1,505 characters cut ...]"
    assert_storable(failure)


def test_a_thousand_frames_are_cut_in_the_middle() -> None:
    """F64: both ends of the traceback of a runaway mutual recursion are there."""

    def even(number: int) -> None:
        odd(number + 1)

    def odd(number: int) -> None:
        even(number + 1)

    failure = describe(raised(lambda: even(0)))

    assert failure.type == "RecursionError"
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert "characters cut ...]" in failure.traceback
    assert "\nRecursionError: " in failure.traceback
    assert_storable(failure)
