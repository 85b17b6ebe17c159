"""What statements leave alone: wide payloads, foreign jobs, and every index that no statement needs."""

from __future__ import annotations

import pytest

from jobq.core.states import State
from jobq.db.store import Owned
from tests.db.plan_cases import FRONT, cases
from tests.db.plans import MODES, STALE, WORKER, buffers, ready, run
from tests.db.rows import KIND, LEASE_S, QUEUE, Rows, new_worker, settle

WIDE = """
    insert into @schema@.job (queue, kind, run_at, enqueued_at, payload)
    select 'mail', 'send_receipt', now() - n * interval '1 s', now(), jsonb_build_object(
        'log', (select string_agg(md5(n::text || '-' || piece::text), '') from generate_series(1, 6000) piece)
    )
    from generate_series(1, 50) n
"""
"""Fifty jobs of 190 kB that do not compress: some 30 pages each, beside the table."""

OTHER_INDEXES = {
    "dead_letter_queue": "list_queues",
    "dead_watch_pkey": "note_dead",
    "done_id": "show_job",
    **{f"done_{slot}_id_idx": "list_done" for slot in range(8)},
    "history_pkey": "settle_done",
    "incident_pkey": "take_incidents",
    "kind_stat_at": "list_kinds",
    "idempotency_key_pkey": "take_keys",
    "idempotency_key_until": "purge_keys",
    "migration_pkey": "read_version",
    "recurring_look": "foresee_recurring",
    "recurring_pkey": "fire_recurring",
    "sleeper_pkey": "enqueue_job",
    "worker_pkey": "beat",
}
"""Those that no case of `plan_cases.py` names, each with a statement that it is for."""

CHANGES = """
    select
        coalesce(sum(s.n_tup_upd), 0)::int, coalesce(sum(s.n_tup_hot_upd), 0)::int,
        coalesce(sum(s.n_tup_del), 0)::int
    from pg_stat_xact_user_tables s
    where s.schemaname = $1 and s.relname = 'job'
"""
PIECES = """
    select coalesce(sum(s.n_tup_ins), 0)::int
    from pg_stat_xact_all_tables s
    join pg_class c on c.reltoastrelid = s.relid
    where c.relname = 'job' and c.relnamespace = quote_ident($1)::regnamespace
"""
"""What this session has changed, or written of wide values, and not reported yet: that it does between transactions."""


def claim(limit: int, kind: str = "send_receipt") -> str:
    return f"'mail', '{{{kind}}}', {limit}, '{WORKER}', 60, {FRONT}"


@pytest.mark.parametrize("mode", MODES)
async def test_a_claim_reads_no_payload_that_it_does_not_take(rows: Rows, mode: str) -> None:
    """F59: fifty jobs of 190 kB are 1,500 pages, and none of them is looked at to find out which job is first."""
    await rows.run(f"{STALE}; {WIDE}")

    plan = await run(rows.conn, rows.store.schema, mode, "claim_jobs", claim(1))

    assert plan["Actual Rows"] == 1
    assert buffers(plan) < 200


async def test_what_changes_while_a_job_lives_does_not_write_its_payload_again(rows: Rows) -> None:
    """F59: claim, renewals, retry and release leave the payload where the enqueue has put it, however wide it is."""
    await rows.run(WIDE)
    worker_id = new_worker()
    (job_id, *_) = await rows.ids()

    for settled in ("settle_retry", "settle_released"):
        async with rows.conn.transaction():
            before = await rows.value(PIECES, rows.store.schema)
            attempt = await rows.reclaimed(job_id, worker_id)
            for _ in range(10):
                await rows.store.renew_jobs(rows.conn, worker_id, [attempt], LEASE_S)
            await settle(rows, settled, attempt)
            after = await rows.value(PIECES, rows.store.schema)

        assert await rows.state_of(job_id) is State.WAITING
        assert after == before


@pytest.mark.parametrize("mode", MODES)
async def test_ten_thousand_jobs_of_unknown_kinds_cost_a_claim_few_pages(rows: Rows, mode: str) -> None:
    """F65: what waits for another release is passed over in the index; before PostgreSQL 17 its rows are looked at."""
    await rows.run(f"{STALE}; {ready(10_000)}")
    await rows.waiting(kind="known")
    # Before 17 the planner gives up the order of an index for a list of kinds, so it filters them: four to a page.
    pages = 500 if rows.conn.get_server_version().major >= 17 else 3_000

    plan = await run(rows.conn, rows.store.schema, mode, "claim_jobs", claim(10, kind="known"))

    assert plan["Actual Rows"] == 1
    assert buffers(plan) < pages


async def test_renewals_touch_no_index(rows: Rows) -> None:
    """F72: nine in ten stay on their page, so that what beats leave behind is cleared without vacuum."""
    worker_id = new_worker()
    ids = await rows.many_waiting(1_000)
    held = [await rows.reclaimed(job_id, worker_id) for job_id in ids[::20]]

    updated = hot = 0
    for _ in range(20):
        async with rows.conn.transaction():
            before = await rows.row(CHANGES, rows.store.schema)
            await rows.store.renew_jobs(rows.conn, worker_id, held, LEASE_S)
            after = await rows.row(CHANGES, rows.store.schema)
        updated, hot = updated + after[0] - before[0], hot + after[1] - before[1]

    assert updated == 20 * len(held)
    assert hot > 0.9 * updated


async def test_a_job_that_is_done_leaves_two_dead_rows(rows: Rows) -> None:
    """F72: that which waited and that which ran; it is what a held snapshot keeps of each job."""
    await rows.many_waiting(100)
    worker_id = new_worker()

    async with rows.conn.transaction():
        before = await rows.row(CHANGES, rows.store.schema)
        claimed = await rows.store.claim_jobs(
            rows.conn, queue=QUEUE, kinds=[KIND], limit=100, worker_id=worker_id, lease_s=LEASE_S
        )
        owned = [Owned(job.id, job.fence) for job in claimed]
        done = await rows.store.settle_done(rows.conn, worker_id, owned, [1] * len(owned))
        after = await rows.row(CHANGES, rows.store.schema)

    updated, _, deleted = (after[place] - before[place] for place in range(3))
    assert len(done) == 100
    assert (updated, deleted) == (100, 100)


async def test_every_index_is_there_for_a_statement(rows: Rows) -> None:
    """F76: few of them, all plain: an index that no statement needs is paid for by every enqueue, and grows."""
    found = await rows.conn.fetch(
        """
        select i.relname, a.amname
        from pg_class i
        join pg_am a on a.oid = i.relam
        where i.relkind in ('i', 'I') and i.relnamespace = quote_ident($1)::regnamespace
        """,
        rows.store.schema,
    )

    needed = {index for case in cases(1) for index in case.indexes}
    assert {row["relname"] for row in found} == needed | OTHER_INDEXES.keys()
    assert {row["amname"] for row in found} == {"btree"}
