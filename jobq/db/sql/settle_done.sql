-- settle_done: running -> done
--
-- Delete the live rows and write their history, with what is on record of earlier runs. Rows that were reaped meanwhile
-- carry another fence, do not match and are not returned: the caller counts them as lost leases.
--
-- The worker is compared in a way that no index serves: by `job_held` the plan would walk all that the worker ever held.
--
-- $1 ids        bigint[]  ascending, no duplicates: `width_bucket` is then the position of an id, in a binary search;
--                      used as `id = any($1)`, so that the plan stays an index scan
-- $2 fences     int[]     by position
-- $3 worker_id  uuid
-- $4 run_ms     int[]     by position: how long the handler ran, in milliseconds
with finished as (
    delete from @schema@.job as j
    where j.id = any($1::bigint[])
        and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
        and j.worker_id is not distinct from $3
    returning
        j.id, j.enqueued_at, j.claimed_at, j.worker_id, j.attempt, j.crashes, j.priority, j.queue, j.kind, j.payload,
        j.errors
), clock as materialized (
    -- The slot of the ring that is current; none while history is off.
    select clock_timestamp() as now, (floor(extract(epoch from clock_timestamp()) / h.slot_s)::bigint % 8)::smallint as slot
    from @schema@.history h
    where h.slot_s > 0
), history as (
    insert into @schema@.done (
        id, enqueued_at, claimed_at, finished_at, worker_id, run_ms, attempt, crashes, slot, priority, queue, kind,
        outcome, payload, errors
    )
    select
        f.id, f.enqueued_at, f.claimed_at, clock.now, f.worker_id, ($4::int[])[width_bucket(f.id, $1::bigint[])],
        f.attempt, f.crashes, clock.slot, f.priority, f.queue, f.kind, 'done', f.payload, f.errors
    from finished f
    cross join clock
)
select id from finished
