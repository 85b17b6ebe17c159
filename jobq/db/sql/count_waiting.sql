-- count_waiting: no change of state
--
-- Each queue in which jobs wait: how many are ready and how many scheduled, counted up to a limit, and since when the
-- oldest of the ready ones could have been claimed. Costs the same for any number of waiting jobs.
--
-- $1 limit  int  count no further
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
)
select w.queue, ready.count, scheduled.count, extract(epoch from now() - oldest.run_at)::float8 as oldest_ready_s
from waiting w
cross join lateral (
    select count(*)
    from (
        select
        from generate_series(0, 9) as lane (priority)
        cross join lateral (
            select
            from @schema@.job j
            where j.worker_id is null
                and j.queue = w.queue
                and j.priority = lane.priority
                and j.run_at <= now()
            -- Only the index gives this order at once: without it, a scan of the table looks cheap to the planner,
            -- which cannot know that the first matching row may stand at its end.
            order by j.run_at
            limit $1::int
        ) as job_of_lane
        limit $1::int
    ) as job_of_queue
) as ready
cross join lateral (
    select count(*)
    from (
        select
        from generate_series(0, 9) as lane (priority)
        cross join lateral (
            select
            from @schema@.job j
            where j.worker_id is null
                and j.queue = w.queue
                and j.priority = lane.priority
                and j.run_at > now()
            order by j.run_at
            limit $1::int
        ) as job_of_lane
        limit $1::int
    ) as job_of_queue
) as scheduled
cross join lateral (
    select min(first.run_at) as run_at
    from generate_series(0, 9) as lane (priority)
    cross join lateral (
        select j.run_at
        from @schema@.job j
        where j.worker_id is null
            and j.queue = w.queue
            and j.priority = lane.priority
            and j.run_at <= now()
        order by j.run_at
        limit 1
    ) as first
) as oldest
where w.queue is not null
