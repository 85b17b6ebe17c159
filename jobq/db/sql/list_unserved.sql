-- list_unserved: no change of state
--
-- Kinds that are ready in a queue in which no live worker takes them, among the oldest of each queue and lane: what is
-- passed over stays in front. Costs the same for any number of waiting jobs.
--
-- $1 limit  int  look no further in each lane
with recursive waiting (queue) as (
    -- A loose scan: one probe of the index a queue, whatever the number of jobs in it.
    (
        select j.queue
        from @schema@.job j
        where j.worker_id is null
        order by j.queue
        limit 1
    )
    union all
    select (
        select j.queue
        from @schema@.job j
        where j.worker_id is null
            and j.queue > w.queue
        order by j.queue
        limit 1
    )
    from waiting w
    where w.queue is not null
), oldest as materialized (
    select distinct w.queue, first.kind
    from waiting w
    cross join generate_series(0, 9) as lane (priority)
    cross join lateral (
        select j.kind
        from @schema@.job j
        where j.worker_id is null
            and j.queue = w.queue
            and j.priority = lane.priority
            and j.run_at <= now()
        order by j.run_at, j.id
        limit $1::int
    ) as first
    where w.queue is not null
)
select o.queue, o.kind
from oldest o
where not exists (
    select
    from @schema@.worker a
    where a.lease_until >= now()
        and o.queue = any(a.queues)
        and o.kind = any(a.kinds)
)
order by o.queue, o.kind
