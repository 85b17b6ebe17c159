"""What may fill the tables beside the jobs that are measured, put there by the server itself, and fast."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from benchmarks.database import SCHEMA

if TYPE_CHECKING:
    from benchmarks.workers import Conn

FILL_LIMIT_S = 3600.0

WAITING = f"""
    insert into {SCHEMA}.job (queue, kind, priority, run_at, enqueued_at, payload)
    select
        'default', 'noop', 5, now() - interval '1 hour' + n * interval '1 microsecond', now() - interval '1 hour',
        jsonb_build_object('order_id', n, 'note', repeat('x', 70))
    from generate_series(1, $1::int) n
"""
SCHEDULED = f"""
    insert into {SCHEMA}.job (queue, kind, priority, run_at, enqueued_at, payload)
    select
        'default', 'noop', n % 10, now() + interval '1 day' + n * interval '1 millisecond', now(),
        jsonb_build_object('order_id', n, 'note', repeat('x', 70))
    from generate_series(1, $1::int) n
"""
DEAD = f"""
    insert into {SCHEMA}.dead_letter (
        id, run_at, enqueued_at, claimed_at, first_failed_at, died_at, attempt, crashes, fence, redrives, priority,
        queue, kind, reason, error_type, error_message, fingerprint, payload, errors
    )
    select
        -n, now(), now(), now(), now(), now() - n * interval '1 millisecond', 10, 0, 10, 0, 5,
        'default', 'noop', 'attempts', 'ValueError', 'no', 'noop:ValueError',
        jsonb_build_object('order_id', n, 'note', repeat('x', 70)), '[]'
    from generate_series(1, $1::int) n
"""
DONE = f"""
    insert into {SCHEMA}.done (
        id, enqueued_at, claimed_at, finished_at, run_ms, attempt, crashes, slot, priority, queue, kind, outcome,
        payload
    )
    select
        -1000000000 - n, now(), now(), now(), 12, 1, 0, n % 8, 5, 'default', 'noop', 'done',
        jsonb_build_object('order_id', n, 'note', repeat('x', 70))
    from generate_series(1, $1::int) n
"""
HELD = f"""
    insert into {SCHEMA}.job (
        queue, kind, priority, run_at, enqueued_at, claimed_at, lease_until, worker_id, attempt, fence, payload
    )
    select
        'default', 'noop', 5, now(), now(), now(), now() + interval '1 hour', $1, 1, 1,
        jsonb_build_object('order_id', n, 'note', repeat('x', 70))
    from generate_series(1, $2::int) n
"""
COUNTED = f"""
    insert into {SCHEMA}.kind_stat (at, worker_id, done, retried, dead, queue, kind, buckets, counts)
    select
        now() - n * interval '1 day' / $1::int, gen_random_uuid(), 9, 1, 0, 'default', 'kind-' || n % 100,
        '{{3, 4, 9}}', '{{4, 5, 1}}'
    from generate_series(1, $1::int) n
"""
STALE = f"""
    analyze {SCHEMA}.job;
    alter table {SCHEMA}.job set (autovacuum_analyze_threshold = 2000000000, autovacuum_analyze_scale_factor = 100)
"""


async def fill_waiting(conn: Conn, jobs: int) -> None:
    """Add ready jobs of priority 5, enqueued an hour ago. In a new schema their ids are 1 to *jobs*."""
    await conn.execute(WAITING, jobs, timeout=FILL_LIMIT_S)


async def fill_scheduled(conn: Conn, jobs: int) -> None:
    """Add jobs of all priorities for tomorrow."""
    await conn.execute(SCHEDULED, jobs, timeout=FILL_LIMIT_S)


async def fill_dead(conn: Conn, letters: int) -> None:
    """Add dead letters, with ids below zero."""
    await conn.execute(DEAD, letters, timeout=FILL_LIMIT_S)


async def fill_done(conn: Conn, jobs: int) -> None:
    """Add finished jobs to all slots of the history, with ids below minus a billion."""
    await conn.execute(DONE, jobs, timeout=FILL_LIMIT_S)


async def fill_held(conn: Conn, worker_id: UUID, jobs: int) -> None:
    """Add jobs that a worker holds."""
    await conn.execute(HELD, worker_id, jobs, timeout=FILL_LIMIT_S)


async def fill_counted(conn: Conn, rows: int) -> None:
    """Add what workers counted of a hundred kinds, spread over the day for which it is kept."""
    await conn.execute(COUNTED, rows, timeout=FILL_LIMIT_S)


async def keep_statistics_stale(conn: Conn) -> None:
    """Take the statistics of the table of jobs as it is now, best while it is empty, and never again."""
    await conn.execute(STALE)
