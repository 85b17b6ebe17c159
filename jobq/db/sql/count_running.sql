-- count_running: no change of state
--
-- Each queue in which jobs run, and how many. Walks what workers hold, which their slots bound.
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
)
select held.queue, sum(held.count)::bigint as running
from holder h
-- Grouped inside, so that this stays a probe for each worker: a join may turn into a scan of the table.
cross join lateral (
    select j.queue, count(*)
    from @schema@.job j
    where j.worker_id = h.worker_id
    group by j.queue
) as held
group by held.queue
