"""Encode a payload to JSON that PostgreSQL will store and a handler will read back, or say exactly why not.

Promises: what `encode` returns is a JSON object, valid as `jsonb`, of at most `MAX_PAYLOAD_BYTES`; no value was
rounded, dropped or turned into `null` on the way. Whatever it cannot promise is refused with a `PayloadError` that
names the path, the value and the remedy, before any SQL. Pure: the warning about large payloads, from
`LARGE_PAYLOAD_BYTES` of `len(encode(...))` on, is the caller's.

| Python | stored as | remarks |
|---|---|---|
| `None`, `bool`, `str` | itself | no U+0000, no lone surrogates |
| `int` | number | -2**63 to 2**63 - 1 |
| `float` | number | finite; without an annotation, one from 1e16 on may come back as `int` |
| `Decimal` | string, `"1.50"` | finite; exact |
| `datetime` | string, `"2026-01-31T09:00:00Z"` | with a zone; an offset with seconds in it is turned to UTC |
| `date`, `time`, `timedelta` | string, ISO 8601 | of a `time`'s own offset the minutes |
| `UUID` | string | |
| `bytes`, `bytearray`, `memoryview` | string, base64 | |
| `Enum` | its value | |
| `list`, `tuple`, `NamedTuple`, `set`, `frozenset` | array | a set in any order |
| `dict`, any `Mapping` | object | keys `str`, `int`, `float`, `Decimal`, `Enum`, `UUID`, `bytes`, dates and times, all stored as strings, zones of times unchecked; of keys that become equal the last stays; `jsonb` does not keep the order |
| dataclass, `msgspec.Struct`, attrs class | object | renames, tags and omitted defaults as msgspec defines them |
| subclass of `str`, `int`, `float`, `Decimal`, `datetime`, `date` | as its base | numpy floats, frozen clocks |

All of them come back as what the handler's annotation says; without an annotation (`Any`) as plain JSON.
"""  # noqa: E501 - a table row cannot be wrapped

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec
import orjson

from jobq.core.names import shown, text_fault
from jobq.errors import PayloadError

MAX_PAYLOAD_BYTES = 256 * 1024  # a row this wide is already 32 pages to write, log, vacuum and send
LARGE_PAYLOAD_BYTES = 8 * 1024  # a page: rather state than intent, and slower to write and to claim
MAX_DEPTH = 100  # far below the limits of orjson (254) and of the interpreter's stack, far above any intent

_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_ESCAPED_NUL = b"\\u0000"  # how orjson writes U+0000
_REMEDY = "pass plain values, or the id to load it by"
_TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels; pass an id to load it by, or a flat list"
_LEFT_ALONE = (Decimal, datetime)  # by msgspec, so that NaN and missing zones are seen


class _Fault(msgspec.Struct, frozen=True):
    path: str
    value: object
    sentence: str  # what is wrong with the value, and the remedy


def encode(values: Mapping[str, object], *, kind: str) -> bytes:
    """Encode *values*, a mapping of names to values, as the payload of a job of *kind*.

    Raises `PayloadError` for what cannot be stored; its `field` is the path, such as `$.lines[3].price`.
    """
    if type(values) is not dict and not isinstance(values, Mapping):
        raise _refusal(kind, _Fault("$", values, "is not an object; pass a mapping, such as {'order_id': 7}"))
    try:
        plain = _to_builtins(values)
    except Exception as exc:  # attributes and properties of user classes may raise anything
        raise _refusal(kind, _unencodable(values, exc)) from exc
    try:
        if not _is_storable(plain, 1):
            raise ValueError("a number or the depth is out of range")
        encoded = _dump(plain)
    except Exception as exc:
        fault = _unstorable(plain) or _Fault("$", values, f"cannot be encoded ({exc}); {_REMEDY}")
        raise _refusal(kind, fault) from exc
    # A backslash before the text "u0000" looks like a NUL in the bytes and is harmless: the slow search decides.
    if _ESCAPED_NUL in encoded and (nul := _unstorable(plain)):
        raise _refusal(kind, nul)
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise _refusal(kind, _too_large(plain, len(encoded)))
    # A copy of the right size: what orjson returns keeps its buffer, 4 kB of memory for as long as the job is held.
    return bytes(memoryview(encoded))


def _to_builtins(value: object) -> Any:  # the border: JSON has no better type
    return msgspec.to_builtins(value, str_keys=True, builtin_types=_LEFT_ALONE, enc_hook=_as_base)


def _dump(plain: object) -> bytes:
    # Datetimes go to `_as_text`: orjson accepts one without a zone, and crashes the process if its tzinfo raises.
    return orjson.dumps(plain, _as_text, orjson.OPT_PASSTHROUGH_DATETIME)


def _is_storable(container: Any, depth: int) -> bool:
    """Check numbers and depth: the hot path, so without paths or calls for a leaf.

    The rest is seen on the way: lone surrogates by orjson, Decimals and times by `_as_text`, NUL in the encoded bytes.
    """
    if depth > MAX_DEPTH:
        return False
    for value in container.values() if type(container) is dict else container:
        what = type(value)
        if what is str:
            continue
        if what is int:
            if not _MIN_INT <= value <= _MAX_INT:
                return False
        elif what is float:
            if not isfinite(value):
                return False
        elif (what is dict or what is list or what is tuple) and not _is_storable(value, depth + 1):
            return False
    return True


def _as_text(value: object) -> object:
    """Write a Decimal or a datetime, which orjson does not take, as msgspec writes and reads it."""
    if fault := _scalar_fault(value):
        raise ValueError(fault)
    if isinstance(value, datetime) and (value.utcoffset() or timedelta()) % timedelta(minutes=1):
        value = value.astimezone(UTC)  # msgspec would round the offset of, say, Paris in 1900 (+00:09:21)
    return msgspec.to_builtins(value)


def _as_base(value: object) -> object:
    """Turn subclasses of plain values, and mappings, into what msgspec encodes."""
    match value:
        case str():
            return str.__str__(value)  # the bases' own methods: an override could return anything
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Decimal():
            return Decimal(value)
        case datetime():
            return datetime.combine(datetime.date(value), datetime.time(value), value.tzinfo)
        case date():
            return date(value.year, value.month, value.day)
        case Mapping():
            return dict(value)
        case _:
            raise TypeError(f"type {type(value).__qualname__} has no JSON form")


def _refusal(kind: str, fault: _Fault) -> PayloadError:
    path = fault.path if len(fault.path) <= 200 else f"{fault.path[:90]} ... {fault.path[-90:]}"
    message = f"payload of {shown(kind)}: {path} = {shown(fault.value)} {fault.sentence}"
    return PayloadError(message, field=path, value=fault.value)


def _scalar_fault(value: object) -> str | None:
    """Say why *value*, which is no container, cannot be stored as it is, or return None."""
    match value:
        case str():
            return text_fault(value)
        case int() if not _MIN_INT <= value <= _MAX_INT:
            return "does not fit into 64 bits, signed; pass it as a string or a Decimal"
        case float() if not isfinite(value):
            return "is not a finite number, which JSON cannot hold; pass None, or leave the field out"
        case Decimal() if not value.is_finite():
            return "is not a finite number; pass None, or leave the field out"
        case datetime() if not _has_zone(value):
            return "is a datetime without a zone; say which: datetime.now(UTC), or value.replace(tzinfo=...)"
        case _:
            return None


def _has_zone(value: datetime) -> bool:
    try:
        return value.utcoffset() is not None
    except Exception:  # a tzinfo of the user's
        return False


def _too_large(plain: dict[str, object], size: int) -> _Fault:
    name, value = max(plain.items(), key=lambda item: len(_dump(item[1])))
    sentence = f"is the largest field of {size:,} bytes, above {MAX_PAYLOAD_BYTES:,}; store it elsewhere, pass its id"
    return _Fault(f"${_step(name)}", value, sentence)


def _unstorable(plain: object) -> _Fault | None:
    """Find the first value, in the order of the document, that PostgreSQL could not store as it is."""
    todo = [("$", plain, 1)]
    while todo:
        path, value, depth = todo.pop()
        if not isinstance(value, dict | list | tuple):
            fault = _scalar_fault(value)
        else:
            fault = _TOO_DEEP if depth > MAX_DEPTH else None
            children = _children(value)
            for key, _ in children:
                if isinstance(key, str) and (sentence := text_fault(key)):
                    return _Fault(f"{path}{_step(key)}", key, f"is a key that {sentence}")
            todo += [(f"{path}{_step(key)}", child, depth + 1) for key, child in reversed(children)]
        if fault:
            return _Fault(path, value, fault)
    return None


def _unencodable(value: object, cause: Exception) -> _Fault:
    """Find the smallest part of *value* that msgspec refuses, by trying the children of each part that it refused."""
    path, trail = "$", {id(value): ("$", value)}
    for _ in range(MAX_DEPTH):
        for key, child in _children(value):
            if id(child) in trail:
                return _Fault(f"{path}{_step(key)}", child, f"refers back to {trail[id(child)][0]}; pass its id")
            try:
                _to_builtins(child)
            except Exception as exc:
                path, value, cause = f"{path}{_step(key)}", child, exc
                trail[id(child)] = path, child  # with the object: an id is good only while the object lives
                break
        else:
            too_deep = isinstance(cause, RecursionError)  # which its parts alone are not
            return _Fault(path, value, _TOO_DEEP if too_deep else f"cannot be encoded ({cause}); {_REMEDY}")
    return _Fault(path, value, _TOO_DEEP)


def _children(value: object) -> list[tuple[object, object]]:
    """List the parts of a container under their names, positions or keys; none if they cannot be read."""
    try:
        if isinstance(value, Mapping):
            return list(value.items())
        if isinstance(value, list | tuple | set | frozenset):
            return list(enumerate(value))
        names = [
            *getattr(value, "__struct_fields__", ()),  # msgspec
            *getattr(value, "__dataclass_fields__", ()),
            *(attribute.name for attribute in getattr(value, "__attrs_attrs__", ())),
        ]
        return [(name, getattr(value, name, None)) for name in names if not isinstance(value, type)]
    except Exception:  # a property of the user's class
        return []


def _step(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() and len(key) <= 40 else f"[{shown(key)}]"
