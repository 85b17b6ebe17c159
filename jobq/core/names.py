"""Say what is wrong with a name, a key or any other text that is to be stored.

Each check returns None, or a sentence that names the value and the remedy; the caller chooses the error
(`HandlerError` at registration, `EnqueueError` at enqueue, `ConfigurationError` for a setting).
"""

from __future__ import annotations

import re
import reprlib
import unicodedata
from functools import lru_cache

MAX_KIND_BYTES = 100
MAX_QUEUE_BYTES = 60  # short enough to be part of a NOTIFY channel's or a metric's name
MAX_SCHEMA_BYTES = 63  # NAMEDATALEN - 1: PostgreSQL would cut a longer one without a word
MAX_KEY_BYTES = 512  # far below the 2.7 kB that fit into a b-tree entry

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")  # safe in SQL, channels, metric labels, URLs, shells and unit names
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, 60, 60, 40


def kind_fault(kind: object) -> str | None:
    """Say why *kind* cannot be the name of a kind, or return None."""
    return _plain_name_fault("kind", kind, MAX_KIND_BYTES, "send_receipt")


def queue_fault(queue: object) -> str | None:
    """Say why *queue* cannot be the name of a queue, or return None."""
    return _plain_name_fault("queue", queue, MAX_QUEUE_BYTES, "mail")


def recurring_fault(name: object) -> str | None:
    """Say why *name* cannot be the name of a recurring entry, or return None."""
    return _plain_name_fault("recurring name", name, MAX_KIND_BYTES, "daily_report")


def schema_fault(schema: object) -> str | None:
    """Say why *schema* cannot be the schema of an instance, or return None. It is quoted wherever it is used."""
    if fault := _stored_text_fault("schema", schema, MAX_SCHEMA_BYTES):
        return fault
    if re.search(r"[$@]", str(schema)):
        return f"schema {shown(schema)} contains $ or @, which mark parameters in jobq's SQL; use a name such as 'jobq'"
    if str(schema).startswith("pg_"):
        return f"schema {shown(schema)} begins with pg_, which PostgreSQL keeps for itself; use a name such as 'jobq'"
    return None


def idempotency_key_fault(key: object) -> str | None:
    """Say why *key* cannot be an idempotency key, or return None."""
    return _stored_text_fault("idempotency key", key, MAX_KEY_BYTES)


def text_fault(text: str) -> str | None:
    """Say why PostgreSQL cannot hold *text*, as the end of a sentence with its remedy, or return None."""
    if "\0" in text:
        return "contains U+0000, which PostgreSQL cannot store; remove it, or pass bytes"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains a lone surrogate, which is no valid text; decode it with errors='replace', or pass bytes"
    return None


def shown(value: object) -> str:
    """Return a short `repr` of *value* for a message. Never raises, whatever the value's own `__repr__` does."""
    try:
        text = str.__str__(_SHORT.repr(value))
    except Exception:
        text = object.__repr__(value)  # runs no code of the value's class
    return text.encode("utf-8", "backslashreplace").decode()


def _plain_name_fault(what: str, name: object, limit: int, example: str) -> str | None:
    if not isinstance(name, str):
        return f"{what} {shown(name)} is not a string; use a name such as {example!r}"
    if not _is_plain_name(name):
        return (
            f"{what} {shown(name)} is not a name of ASCII letters, digits and _ . : - that begins with a letter or"
            f" digit; use one such as {example!r}"
        )
    if len(name) > limit:
        return f"{what} {shown(name)} has {len(name)} characters, more than {limit}; use a shorter name"
    return None


@lru_cache(maxsize=1024)
def _is_plain_name(name: str) -> bool:  # an application has few names, and each enqueue checks two
    return _NAME.fullmatch(name) is not None


def _stored_text_fault(what: str, text: object, limit: int) -> str | None:
    if not isinstance(text, str) or not text:
        return f"{what} {shown(text)} is not a string of 1 to {limit} bytes; pass one"
    if fault := text_fault(text):
        return f"{what} {shown(text)} {fault}"
    if any(unicodedata.category(char) == "Cc" for char in text):
        return f"{what} {shown(text)} contains a control character; remove it"
    if (size := len(text.encode())) > limit:
        return f"{what} {shown(text)} has {size:,} bytes in UTF-8, more than {limit}; shorten it, or use its hash"
    return None
