-- show_job: no change of state
--
-- One job whole, while it lives and after it is done. What one of the two does not keep is null.
--
-- $1 id  bigint
select
    found.id, found.kind, found.queue, found.state, found.priority, found.attempt, found.enqueued_at, found.run_at,
    found.claimed_at, found.finished_at, found.worker_id, w.host || ':' || w.pid as worker, found.max_attempts,
    found.crashes, found.redrives, found.fence, found.lease_until, found.first_failed_at, found.run_ms,
    found.idempotency_key, found.payload, found.errors, found.headers
from (
    select
        j.id, j.kind, j.queue,
        case
            when j.worker_id is not null then 'running'
            when j.run_at <= now() then 'ready'
            else 'scheduled'
        end as state,
        j.priority, j.attempt, j.enqueued_at, j.run_at, j.claimed_at, null::timestamptz as finished_at, j.worker_id,
        j.max_attempts, j.crashes, j.redrives, j.fence, j.lease_until, j.first_failed_at, null::int as run_ms,
        j.idempotency_key, j.payload, j.errors, j.headers
    from @schema@.job j
    where j.id = $1
    union all
    select
        d.id, d.kind, d.queue, 'done', d.priority, d.attempt, d.enqueued_at, null, d.claimed_at, d.finished_at,
        d.worker_id, null, d.crashes, null, null, null, null, d.run_ms, null, d.payload, d.errors, null
    from @schema@.done d
    where d.id = $1
) as found
left join @schema@.worker w on w.worker_id = found.worker_id
