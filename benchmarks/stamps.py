"""The application of the benchmarks that ask when jobs start: `jobq run benchmarks.stamps:queue`.

The handler appends id and time to the file that `BENCHMARK_STAMPS` names. Without it, it does nothing.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from benchmarks.database import SCHEMA
from jobq import Job, Queue

STAMPS = "BENCHMARK_STAMPS"
_STAMP = struct.Struct("qd")

queue = Queue(schema=SCHEMA)
_file = os.open(os.environ.get(STAMPS, os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@queue.task(kind="stamp", on_duplicate="harmless: the first stamp counts")
async def stamp(job: Job) -> None:
    """Write down when the job started, by this machine's clock."""
    os.write(_file, _STAMP.pack(job.id, time.time()))


def read_stamps(path: Path) -> dict[int, float]:
    """Return when each job started, in seconds since the epoch."""
    stamps: dict[int, float] = {}
    for job_id, at in _STAMP.iter_unpack(path.read_bytes()):
        stamps.setdefault(job_id, at)
    return stamps
