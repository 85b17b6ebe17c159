-- renew_jobs: running -> running
--
-- The job's lease: say that the worker is still at these jobs. Returns those that it still owns; the others are lost.
-- A row that is locked, by a handler's own transaction say, is passed over and not waited for: it is owned all the same,
-- and the lease outlasts a few beats.
--
-- $1 ids        bigint[]  ascending, no duplicates: `width_bucket` is then the position of an id
-- $2 fences     int[]     by position
-- $3 worker_id  uuid
-- $4 lease_s    float8    the job's lease, in seconds
with owned as materialized (
    select j.id
    from @schema@.job j
    where j.id = any($1::bigint[])
        and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
        and j.worker_id is not distinct from $3
), free as materialized (
    select j.id
    from @schema@.job j
    where j.id = any(array(select o.id from owned o))
        and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
        and j.worker_id is not distinct from $3
    for update skip locked
), renewed as (
    update @schema@.job as j
    set lease_until = clock_timestamp() + $4::float8 * interval '1 second'
    where j.id = any(array(select f.id from free f))
        and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
        and j.worker_id is not distinct from $3
)
select o.id from owned o
