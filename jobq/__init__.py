"""jobq: background jobs for teams that already have PostgreSQL.

    from jobq import Queue

    queue = Queue()

    @queue.task(kind="send_receipt", queue="mail")
    async def send_receipt(order_id: int) -> None: ...

    async with pool.acquire() as conn, conn.transaction():
        order_id = await conn.fetchval("insert into orders ... returning id")
        await queue.enqueue(send_receipt.bind(order_id=order_id), conn=conn)

Reading order for the code: `core/states.py`, `db/sql/claim_jobs.sql`, `db/sql/settle_*.sql`, then in `worker/`
`supervisor.py`, `claimer.py`, `executor.py`, `settler.py`.
"""

from jobq.core.alert import BacklogAlert, DeadAlert
from jobq.core.job import Enqueued, JobId, NewJob
from jobq.core.outcomes import Snooze
from jobq.core.retry import Backoff
from jobq.errors import (
    AccessRefusedError,
    ConfigurationError,
    ConflictError,
    DatabaseError,
    DatabaseUnavailableError,
    EmbeddedServerError,
    EnqueueError,
    HandlerError,
    ImportTargetError,
    JobqError,
    LargePayloadWarning,
    LostLeaseError,
    MigrationError,
    NotInTransactionError,
    PayloadError,
    Permanent,
    PreparedStatementError,
    RecurringError,
    ResourceError,
    RetryAfter,
    SchemaError,
    UnknownKindError,
)
from jobq.handle import Job
from jobq.queue import Queue
from jobq.registration import Handler

__all__ = [
    "AccessRefusedError",
    "BacklogAlert",
    "Backoff",
    "ConfigurationError",
    "ConflictError",
    "DatabaseError",
    "DatabaseUnavailableError",
    "DeadAlert",
    "EmbeddedServerError",
    "EnqueueError",
    "Enqueued",
    "Handler",
    "HandlerError",
    "ImportTargetError",
    "Job",
    "JobId",
    "JobqError",
    "LargePayloadWarning",
    "LostLeaseError",
    "MigrationError",
    "NewJob",
    "NotInTransactionError",
    "PayloadError",
    "Permanent",
    "PreparedStatementError",
    "Queue",
    "RecurringError",
    "ResourceError",
    "RetryAfter",
    "SchemaError",
    "Snooze",
    "UnknownKindError",
]
