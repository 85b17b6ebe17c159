-- insert_jobs: absent -> waiting
--
-- Many jobs at once, with ids from draw_ids. Arrays go by position. A `run_at` in the past is stored as now.
--
-- $1 ids               bigint[]
-- $2 kinds             text[]
-- $3 payloads          text[]    JSON objects
-- $4 queues            text[]
-- $5 run_ats           text[]    ISO 8601 with offset, or null
-- $6 delays_s          float8[]  seconds from the database's now, or null; used where $5 is null
-- $7 priorities        int[]
-- $8 idempotency_keys  text[]    or null
-- $9 max_attempts      int[]     or null: the handler's
-- $10 headers          text      JSON object for all of them, or null
with clock as materialized (select clock_timestamp() as now)
insert into @schema@.job (
    id, kind, payload, queue, run_at, enqueued_at, priority, idempotency_key, max_attempts, headers
)
select
    u.id, u.kind, u.payload::jsonb, u.queue,
    greatest(coalesce(u.run_at::timestamptz, clock.now + u.delay_s * interval '1 second'), clock.now),
    clock.now, u.priority, u.idempotency_key, u.max_attempts, $10::text::jsonb
from unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::int[], $8::text[], $9::int[]
) as u (id, kind, payload, queue, run_at, delay_s, priority, idempotency_key, max_attempts)
cross join clock
