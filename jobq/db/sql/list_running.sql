-- list_running: no change of state
--
-- The newest of the jobs that run, with the host and process of their worker; `reports.py` joins the filter.
--
-- $1 limit  int
with recursive holder (worker_id) as (
    -- A loose scan: one probe of the index a worker.
    (
        select j.worker_id
        from @schema@.job j
        where j.worker_id is not null
        order by j.worker_id
        limit 1
    )
    union all
    select (
        select j.worker_id
        from @schema@.job j
        where j.worker_id > h.worker_id
        order by j.worker_id
        limit 1
    )
    from holder h
    where h.worker_id is not null
), held as materialized (
    select j.id, j.kind, j.queue, j.priority, j.attempt, j.enqueued_at, j.run_at, j.claimed_at, j.worker_id
    from holder h
    -- By what each worker holds: by id, all that waits and is newer would be walked first. `offset 0` keeps this a
    -- probe for each worker: a join may turn into a scan of the table.
    cross join lateral (
        select
            j.id, j.kind, j.queue, j.priority, j.attempt, j.enqueued_at, j.run_at, j.claimed_at, j.worker_id
        from @schema@.job j
        where j.worker_id = h.worker_id
        offset 0
    ) as j
    where true /* filter */
)
select
    j.id, j.kind, j.queue, 'running' as state, j.priority, j.attempt, j.enqueued_at, j.run_at, j.claimed_at,
    null::timestamptz as finished_at, j.worker_id, w.host || ':' || w.pid as worker
from held j
left join @schema@.worker w on w.worker_id = j.worker_id
order by j.id desc
limit $1::int
