"""Describe why an attempt failed, in text that can always be stored.

Promises: `describe` and `plain` never raise, whatever the exception does; their text is valid UTF-8 without U+0000 and
bounded; an exception group is told by its leaves. Tracebacks carry no values of variables, which may be secrets, and
what a message says of secrets is covered (`redaction.py`) before anything is cut.

A *fingerprint* is the same for the same error at the same place, over releases, workers and values, so that a
hundred dead letters become one line. It hashes, for each distinct leaf (of the first hundred) in sorted order: the name
of the type, file name and function of the innermost frame, and the message with numbers, ids and quoted parts taken
out. Line numbers and folders are left out because deploys change them, the order and number of leaves because timing
does.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType

import msgspec

from jobq.core.redaction import Cover, cover_passwords

MAX_MESSAGE_BYTES = 2 * 1024
MAX_ERROR_BYTES = 32 * 1024  # a job keeps up to 21 of these

_MAX_TOLD = 10  # leaves of a group that its message lists
_MAX_PARTS = 100  # of a group, to be formatted in full; a fan-out of 10,000 would take seconds
_MARKER_BYTES = 64  # room for the marker in the middle of a text that was cut
# Above every handler, and they say nothing.
_RUNNERS = ("jobq.worker.", "jobq.telemetry.", "asyncio.", "anyio.", "concurrent.futures.")

_VARYING = re.compile(
    r"""(?<!\w)[bBrRuU]{0,2}('[^'\n]*('(?!\w)|\Z)|"[^"\n]*("(?!\w)|\Z)|`[^`\n]*(`(?!\w)|\Z))  # quoted; open at a cut
      | \b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b                               # UUID
      | \b(?:0[xX][0-9a-fA-F]+|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{6,})\b                            # address, hash
      | [-+]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?                                                # number, time
    """,
    re.VERBOSE,
)


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt failed, or was handed back: bounded, storable text."""

    type: str
    """Module and name of the exception's class; built-in ones without module."""
    message: str
    traceback: str
    """As Python prints it, or empty where there was no exception."""
    fingerprint: str
    """12 hexadecimal digits, see the module."""
    redact: tuple[str, ...] = ()
    """The redacted fields of the job's kind, for whoever shows the payload without knowing the kind."""


def describe(error: BaseException, *, cover: Cover = cover_passwords) -> Failure:
    """Describe *error*. A group of one is told as its leaf. Never raises; at the worst the text says that it failed.

    All text goes through *cover*.
    """
    try:
        parts = leaves(error)
        told = parts[0] if len(parts) == 1 else error
        return Failure(
            type=_cut(_type_name(told), MAX_MESSAGE_BYTES),
            message=_cut(_message(told, cover) if told is parts[0] else _summary(parts, cover), MAX_MESSAGE_BYTES),
            traceback=_cut(cover(_formatted(error)) or _formatted_by_leaf(parts, cover), MAX_ERROR_BYTES),
            fingerprint=_fingerprint(sorted({_identity(part, cover) for part in parts[:_MAX_PARTS]})),
        )
    except BaseException:  # out of memory or of stack: the attempt must be settled all the same
        return _UNDESCRIBED


def plain(reason: str, *, type: str = "Failure") -> Failure:
    """Describe a failure that is no exception, such as a time-out or a lost worker."""
    identity = f"{type}\n{_without_values(reason)}"
    return Failure(_cut(type, MAX_MESSAGE_BYTES), _cut(reason, MAX_MESSAGE_BYTES), "", _fingerprint([identity]))


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions that *error* is made of: itself, or what its groups contain, in order, each one once."""
    found: list[BaseException] = []
    seen: set[int] = set()
    todo = [error]  # a list of our own: groups may be nested deeper than the stack
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        inner = _inner(part)
        if inner:
            todo += reversed(inner)
        else:
            found.append(part)
    return found


# -- asking an exception, whose class may do anything: raise, lie, return what is no string ------------


def _inner(error: BaseException) -> tuple[BaseException, ...]:
    """Return what *error* holds if it is a group."""
    if not issubclass(type(error), BaseExceptionGroup):  # not `isinstance`, which asks `__class__`
        return ()
    inner: tuple[BaseException, ...] = vars(BaseExceptionGroup)["exceptions"].__get__(error)
    return inner


def _traceback(error: BaseException) -> TracebackType | None:
    top: TracebackType | None = vars(BaseException)["__traceback__"].__get__(error)
    return top


def _safely(make: Callable[[], str]) -> str:
    """Return what *make* returns, or "" if it raises: anything, even SystemExit."""
    try:
        return str.__str__(make())  # an exact `str`: a subclass could override what is done with it next
    except BaseException:
        return ""


def _type_name(error: BaseException) -> str:
    cls = type(error)  # not `__class__`, which may lie
    name = _safely(lambda: cls.__qualname__)
    module = _safely(lambda: cls.__module__)
    return f"{module}.{name}" if module not in ("", "builtins") else name or "nameless exception"


def _message(error: BaseException, cover: Cover) -> str:
    try:
        return cover(str.__str__(str(error)))
    except BaseException as exc:
        return f"(no message: its __str__ raised {_type_name(exc)})"


# -- text --------------------------------------------------------------------------------------------


def _line(error: BaseException, cover: Cover) -> str:
    """Tell *error* in one line, as a traceback ends, the message shortened."""
    message = " ".join(_message(error, cover)[:200].split())
    return f"{_type_name(error)}: {message}" if message else _type_name(error)


def _summary(parts: list[BaseException], cover: Cover) -> str:
    more = f"; and {len(parts) - _MAX_TOLD:,} more" if len(parts) > _MAX_TOLD else ""
    told = "; ".join(_line(part, cover) for part in parts[:_MAX_TOLD])
    return f"{len(parts):,} leaves: {told}{more}"


def _formatted(error: BaseException) -> str:
    """Format *error* as Python does, causes, notes and groups included, or return "" if that is not possible."""
    if not _is_small(error):
        return ""
    return _safely(lambda: "".join(traceback.format_exception(type(error), error, _below_runners(_traceback(error)))))


def _formatted_by_leaf(parts: list[BaseException], cover: Cover) -> str:
    """Format frames and message of the first leaves, which asks as little of an exception as possible."""
    more = f"\nand {len(parts) - _MAX_TOLD:,} more\n" if len(parts) > _MAX_TOLD else ""
    told = (f"{cover(_frames(part))}{_type_name(part)}: {_message(part, cover)}\n" for part in parts[:_MAX_TOLD])
    return "\n".join(told) + more


def _frames(error: BaseException) -> str:
    return _safely(lambda: "".join(traceback.format_tb(_traceback(error))))


def _is_small(error: BaseException) -> bool:
    """Say whether *error* has at most `_MAX_PARTS` parts, those that it holds twice counted twice."""
    count, todo = 0, [error]
    while todo and count + len(todo) <= _MAX_PARTS:
        count += 1
        todo += _inner(todo.pop())
    return not todo


def _below_runners(top: TracebackType | None) -> TracebackType | None:
    """Leave out the outermost frames, down to the handler's; if there is no other frame, keep them all."""
    at = top
    while at is not None and f"{at.tb_frame.f_globals.get('__name__')}.".startswith(_RUNNERS):
        at = at.tb_next
    return at or top


def _cut(text: str, limit: int) -> str:
    """Bound *text* to *limit* bytes of UTF-8 that PostgreSQL can store; both ends stay, they say most."""
    if len(text) <= limit and len(whole := _storable(text)) <= limit:
        return whole.decode()
    half = (limit - _MARKER_BYTES) // 2  # a character has a byte or more, so that many of them are enough
    head = _storable(text[:half])[:half].decode(errors="ignore")
    tail = _storable(text[-half:])[-half:].decode(errors="ignore")
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters cut ...]\n{tail}"


def _storable(text: str) -> bytes:
    text = text.replace("\0", "\ufffd")
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates; of the codecs, that of UTF-16 can replace each by U+FFFD
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


# -- fingerprint -------------------------------------------------------------------------------------


def _identity(error: BaseException, cover: Cover) -> str:
    return f"{_type_name(error)}\n{_place(_traceback(error))}\n{_without_values(_message(error, cover))}"


def _place(at: TracebackType | None) -> str:
    """Name file and function of the innermost frame."""
    if at is None:
        return ""
    while at.tb_next is not None:
        at = at.tb_next
    code = at.tb_frame.f_code
    return f"{code.co_filename.rpartition('/')[2]} {code.co_qualname}"


def _without_values(message: str) -> str:
    """Replace what varies from job to job; the beginning is enough, and the rest may be a whole document."""
    return _VARYING.sub("#", message[:MAX_MESSAGE_BYTES])[:200]


def _fingerprint(identities: Iterable[str]) -> str:
    return hashlib.blake2b("\n\n".join(identities).encode(errors="replace"), digest_size=6).hexdigest()


_UNDESCRIBED = plain("the exception could not be described", type="unknown")
