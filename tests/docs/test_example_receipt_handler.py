"""The tests of examples/test_receipt_handler.py pass, and each of them can fail."""

from __future__ import annotations

import re

from tests.docs.conftest import PROCESSES, REPOSITORY, Told


@PROCESSES
async def test_its_head_tells_how_to_run_it(database: str) -> None:
    """All of its tests pass."""
    told = Told(database, REPOSITORY)
    [command] = told.commands("test_receipt_handler")

    said = await told.run(command)

    assert re.search(r"\b3 passed in ", said), said
