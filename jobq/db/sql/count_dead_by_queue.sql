-- count_dead_by_queue: no change of state
--
-- Each queue that has dead letters, and how many, counted up to a limit.
--
-- $1 limit  int  count no further
with recursive bereaved (queue) as (
    -- A loose scan: one probe of the index a queue.
    (
        select d.queue
        from @schema@.dead_letter d
        order by d.queue
        limit 1
    )
    union all
    select (
        select d.queue
        from @schema@.dead_letter d
        where d.queue > b.queue
        order by d.queue
        limit 1
    )
    from bereaved b
    where b.queue is not null
)
select b.queue, dead.count
from bereaved b
cross join lateral (
    select count(*)
    from (
        select
        from @schema@.dead_letter d
        where d.queue = b.queue
        -- Only the index gives this order at once; without it, a scan of the table looks cheap to the planner.
        order by d.kind, d.id
        limit $1::int
    ) as letter
) as dead
where b.queue is not null
