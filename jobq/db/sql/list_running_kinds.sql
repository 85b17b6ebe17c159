-- list_running_kinds: no change of state
--
-- How many jobs of each queue and kind run, and for how long the first of them has. Walks what workers hold, and nothing
-- that waits.
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
select
    held.queue, held.kind, sum(held.count)::bigint as running,
    greatest(extract(epoch from now() - min(held.claimed_at)), 0)::float8 as oldest_s
from holder h
-- Grouped inside, so that this stays a probe for each worker: a join may turn into a scan of the table.
cross join lateral (
    select j.queue, j.kind, count(*), min(j.claimed_at) as claimed_at
    from @schema@.job j
    where j.worker_id = h.worker_id
    group by j.queue, j.kind
) as held
group by held.queue, held.kind
order by oldest_s desc, held.queue, held.kind
