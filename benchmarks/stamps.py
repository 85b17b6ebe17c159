"""When jobs start, and the application of the benchmarks that ask: `jobq run benchmarks.stamps:queue`.

A stamp, id and time, is appended to the file that `BENCHMARK_STAMPS` names. Without it, nothing is.
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
    """Write down when the job started."""
    write_stamp(job.id)


def write_stamp(job_id: int) -> None:
    """Write down that the job starts now, by this machine's clock."""
    os.write(_file, _STAMP.pack(job_id, time.time()))


class StampReader:
    """Reads a file of stamps while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._started: dict[int, float] = {}

    def read(self) -> dict[int, float]:
        """Return when each job started, but for those that the caller has taken out of what was returned before."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            grown = file.read()
        whole = len(grown) // _STAMP.size * _STAMP.size
        self._read += whole
        for job_id, at in _STAMP.iter_unpack(grown[:whole]):
            self._started.setdefault(job_id, at)
        return self._started


def read_stamps(path: Path) -> dict[int, float]:
    """Return when each job started, in seconds since the epoch."""
    stamps: dict[int, float] = {}
    for job_id, at in _STAMP.iter_unpack(path.read_bytes()):
        stamps.setdefault(job_id, at)
    return stamps
