-- has_ready: no change of state
--
-- Whether any job is ready now. Asks each queue and lane by itself, so that scheduled jobs are not walked.
--
-- $1 queues  text[]
-- $2 kinds   text[]
select exists (
    select
    from unnest($1::text[]) as q (queue)
    cross join generate_series(0, 9) as lane (priority)
    cross join lateral (
        select
        from @schema@.job j
        where j.worker_id is null
            and j.queue = q.queue
            and j.priority = lane.priority
            and j.run_at <= now()
            and j.kind = any($2::text[])
        -- Any one would do, but without an order the planner would scan the table for it.
        order by j.run_at, j.id
        limit 1
    ) as ready
)
