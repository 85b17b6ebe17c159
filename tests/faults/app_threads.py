"""The application of `app.py` with a handler that runs in a thread, for which each worker needs a claim loop more."""

from __future__ import annotations

import time

from jobq import Job
from tests.faults.app import note, queue


@queue.task(kind="sit", timeout=0.5, on_duplicate="the ledger shows it")
def sit(job: Job, seconds: float) -> None:
    """Hold a thread past the time-out."""
    note("start", job)
    time.sleep(seconds)
    note("end", job)
