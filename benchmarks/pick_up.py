"""How long jobs waited: from the enqueue, by the server's clock, to the first line of the handler, on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.database import SCHEMA
from benchmarks.stamps import read_stamps

if TYPE_CHECKING:
    from benchmarks.workers import Conn

ENQUEUED = f"""
    select id, extract(epoch from enqueued_at)::float8
    from {SCHEMA}.done
    where kind = $1
    order by id
"""
QUESTION_LIMIT_S = 600.0


class Wait(NamedTuple):
    """When a job was enqueued, in seconds since the epoch, and how long it waited."""

    enqueued_at: float
    ms: float


@contextmanager
def stamp_file() -> Iterator[Path]:
    """Give a new file for a worker's stamps, removed afterwards."""
    with TemporaryDirectory(prefix="jobq-stamps-") as directory:
        yield Path(directory, "stamps")


async def read_waits(conn: Conn, stamps: Path, *, kind: str = "stamp") -> tuple[list[Wait], str]:
    """Return the waits of all jobs of *kind* that are done, by id, and why they are void, or nothing."""
    started = read_stamps(stamps)
    rows = await conn.fetch(ENQUEUED, kind, timeout=QUESTION_LIMIT_S)
    if started.keys() != {row[0] for row in rows}:
        return [], f"{len(rows)} jobs are done, {len(started)} have started"
    return [Wait(enqueued_at, (started[job_id] - enqueued_at) * 1000) for job_id, enqueued_at in rows], ""


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that *percent* of *values* do not exceed."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]
