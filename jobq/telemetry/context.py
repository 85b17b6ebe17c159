"""Whose log line this is: the worker and the job that the code now running belongs to.

Context variables, so that what a handler calls, in a task or thread of its own too, is told as its own.
"""

from __future__ import annotations

from contextvars import ContextVar

from jobq.core.job import ClaimedJob, WorkerId

worker_of_context: ContextVar[WorkerId | None] = ContextVar("worker_of_context", default=None)
job_of_context: ContextVar[ClaimedJob | None] = ContextVar("job_of_context", default=None)


def ids_of_context() -> dict[str, object]:
    """Return the ids that a log line bears by where it is written."""
    ids: dict[str, object] = {}
    if (worker_id := worker_of_context.get()) is not None:
        ids["worker_id"] = str(worker_id)
    if (job := job_of_context.get()) is not None:
        ids |= {"id": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempt}
    return ids
