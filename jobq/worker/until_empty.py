"""When a worker that is to end by itself has nothing left to do."""

from __future__ import annotations

import anyio

from jobq.db.reports import Reports
from jobq.errors import DatabaseUnavailableError
from jobq.telemetry.measured import WakeUp
from jobq.worker.assembly import Parts
from jobq.worker.claimer import Claimer

CHECK_S = 0.05


async def wait_until_empty(parts: Parts, reports: Reports) -> None:
    """Wait until nothing that this worker takes is ready, under way here or unsettled; not for what is scheduled.

    What is ready in other workers' hands is theirs.
    """
    while True:
        await anyio.sleep(CHECK_S)
        if parts.is_busy:
            continue
        # What starts during the questions may enqueue into a queue that was asked already.
        started = parts.started
        try:
            ready = [claimer for claimer in parts.claimers if await _has_ready(parts, reports, claimer)]
        except DatabaseUnavailableError:
            continue
        for claimer in ready:
            claimer.wake(WakeUp.POLL)
        if not ready and not parts.is_busy and parts.started == started:
            return


async def _has_ready(parts: Parts, reports: Reports, claimer: Claimer) -> bool:
    async with parts.links["upkeep"].lend() as conn:
        return await reports.has_ready(conn, [claimer.queue], claimer.kinds)
