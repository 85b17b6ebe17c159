"""The application of `app.py` with a hook that tells of dead letters: the ledger shows who was told, and by whom."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from jobq import DeadAlert
from tests.faults.app import LEDGER, queue

HANGS = Path("hangs")
"""While this file is there, a call does not come back."""


def note_alert(what: str, alert: DeadAlert) -> None:
    """Write to the ledger what a call was about."""
    entry = {
        "what": what,
        "id": alert.job_id,
        "kind": alert.kind,
        "attempt": 0,
        "fence": 0,
        "pid": os.getpid(),
        "at": time.clock_gettime(time.CLOCK_BOOTTIME),
        "token": f"{alert.letters} {alert.error_type}",
    }
    os.write(LEDGER, json.dumps(entry).encode() + b"\n")


@queue.on_dead(kinds=("fail",))
async def tell(alert: DeadAlert) -> None:
    """Tell the ledger."""
    note_alert("telling", alert)
    if HANGS.exists():
        await asyncio.sleep(600)
    note_alert("told", alert)
