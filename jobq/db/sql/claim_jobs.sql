-- claim_jobs: waiting -> running
--
-- Take up to `limit` ready jobs of one queue for a worker, lower priority numbers first, then by run_at and id. The
-- attempt is counted and the fence raised here, before any user code runs. Rows that another claim holds are passed
-- over, and so is what lies before the marks, which `find_passed` looks for. What comes back is in no particular order.
--
-- $1 queue      text
-- $2 kinds      text[]         only kinds that this worker can run
-- $3 limit      int            never more than this many
-- $4 worker_id  uuid
-- $5 lease_s    float8         the job's lease, in seconds
-- $6 run_ats    timestamptz[]  by priority: where to start, so that the dead index entries in front are not walked
-- $7 ids        bigint[]       by priority: among jobs of the same run_at
with picked as materialized (
    -- A CTE: a `limit` inside `id in (select ...)` may run once a row and over-claim.
    select ready.id
    from unnest($6::timestamptz[], $7::bigint[]) with ordinality as lane (run_at, id, place)
    -- Ten short index scans, one a lane: one scan over all priorities walks every scheduled job in front of the next
    -- lane. The outer limit stops asking lanes as soon as it has enough.
    cross join lateral (
        select j.id
        from @schema@.job j
        where j.worker_id is null
            and j.queue = $1
            and j.priority = lane.place - 1
            -- A second back at least: jobs become visible when they are committed, not in the order of run_at.
            and (j.run_at, j.id) >= (least(lane.run_at, now() - interval '1 second'), lane.id)
            and j.run_at <= now()
            and j.kind = any($2::text[])
        order by j.run_at, j.id
        limit $3::int
        for update skip locked
    ) as ready
    limit $3::int
)
update @schema@.job as j
set worker_id = $4,
    fence = j.fence + 1,
    attempt = j.attempt + 1,
    claimed_at = clock_timestamp(),
    lease_until = clock_timestamp() + $5::float8 * interval '1 second'
-- An array, not a join: under a generic plan a join may turn into a scan of the table. That the job waits stands in
-- `picked`, which holds its lock; said again here, it would invite a walk of the whole index of waiting jobs.
where j.id = any(array(select id from picked))
returning
    j.id, j.queue, j.kind, j.priority, j.run_at, j.payload, j.attempt, j.crashes, j.max_attempts, j.fence,
    j.enqueued_at, j.headers, j.lone_crashes
