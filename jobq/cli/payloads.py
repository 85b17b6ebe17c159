"""A job's payload as commands show it: without the values of the fields that its kind redacts.

The command line does not know the kinds. What a handler redacts stands beside each error that a worker recorded; of a
job without one nobody has said it.
"""

from __future__ import annotations

import json
from typing import Any

from jobq.core.redaction import COVER, cover_fields


def redacted_fields(errors: str | None) -> tuple[str, ...] | None:
    """Return the fields that the recorded *errors*, a JSON array, name, or None if none of them says any or none."""
    recorded = [] if errors is None else json.loads(errors)
    stated = [error["redact"] for error in recorded if isinstance(error, dict) and "redact" in error]
    return tuple(sorted({path for paths in stated for path in paths})) if stated else None


def shown_payload(payload: str, fields: tuple[str, ...] | None) -> Any:
    """Return the *payload*, JSON text, with these fields covered, or, if they are not known, every value."""
    document = json.loads(payload)
    if fields is not None:
        return cover_fields(document, fields)
    return dict.fromkeys(document, COVER) if isinstance(document, dict) else COVER
