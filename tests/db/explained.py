"""What a test of `explain` does: let workers be alive and jobs be ready, ask why, and compare the sentence."""

from __future__ import annotations

import json
import re
from typing import Any

from jobq.core.job import JobId, WorkerId
from jobq.core.worker import Slots, WorkerRow
from jobq.db.reports import Explanation, Reports
from tests.db.rows import KIND, LEASE_S, Rows, new_worker

MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00"


async def serve(
    rows: Rows,
    *queues: str,
    kinds: tuple[str, ...] = (KIND,),
    worker_id: WorkerId | None = None,
    lease_s: float = LEASE_S,
    slots: tuple[Slots, ...] = (),
) -> WorkerId:
    """Let a worker be alive, host web-1 and process 7. Without *slots* nobody knows how many it has."""
    worker_id = worker_id or new_worker()
    row = WorkerRow(worker_id, 7, "web-1", "0", list(queues), list(kinds), slots)
    await rows.store.beat(rows.conn, row, lease_s)
    return worker_id


async def ready_for(rows: Rows, interval: str, **stated: Any) -> JobId:
    """Enqueue a job that has been ready for that long."""
    job_id = await rows.waiting(**stated)
    await rows.run(f"update @schema@.job set run_at = clock_timestamp() - interval '{interval}' where id = $1", job_id)
    return job_id


async def why(rows: Rows, job_id: int) -> Explanation:
    """Ask as the command does, and as psql would, which answer alike."""
    found = await Reports(rows.store.schema).explain_job(rows.conn, JobId(job_id))
    typed = await rows.row("select reason from @schema@.explain($1)", job_id)
    assert typed["reason"] == found.reason
    return found


def numbers(found: Explanation) -> dict[str, Any]:
    """The numbers of the sentence, as a program reads them."""
    read: dict[str, Any] = json.loads(found.numbers)
    return read


def holds(found: Explanation, reason: str, pattern: str) -> bool:
    """Say whether the answer is this one, and fail with what it is if not."""
    assert found.reason == reason, found
    assert re.fullmatch(pattern, found.sentence), found
    return True
