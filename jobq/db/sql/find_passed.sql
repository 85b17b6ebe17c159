-- find_passed: no change of state
--
-- Whether a ready job lies before the marks of a claim loop, and nobody holds it. Returns the database's time if none
-- does, else null. A row lock, gone with the statement, because a job that another claim is just taking was not missed.
--
-- $1 queue    text
-- $2 kinds    text[]
-- $3 sinces   timestamptz[]  by priority: where to begin, so that a look may go back a part of the way only
-- $4 run_ats  timestamptz[]  by priority, as for `claim_jobs`
-- $5 ids      bigint[]       by priority
with passed as materialized (
    select
    from unnest($3::timestamptz[], $4::timestamptz[], $5::bigint[]) with ordinality as lane (since, run_at, id, place)
    cross join lateral (
        select
        from @schema@.job j
        where j.worker_id is null
            and j.queue = $1
            and j.priority = lane.place - 1
            and j.run_at >= lane.since
            and (j.run_at, j.id) < (lane.run_at, lane.id)
            -- Not `now()` alone: the scan of PostgreSQL 18 would go on to there, through all that is ready.
            and j.run_at <= least(lane.run_at, now())
            and j.kind = any($2::text[])
        order by j.run_at, j.id
        limit 1
        for update skip locked
    ) as ready
    limit 1
)
select case when not exists (select from passed) then now() end as nothing_until
