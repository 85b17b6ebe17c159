-- settle_released: running -> waiting
--
-- Hand jobs back with their attempt: a drain (no delay) or a Snooze. Nothing is recorded as a failure. The fence keeps
-- its value, so that what the ended attempt still writes does not match after the next claim. Rows that do not match
-- are lost leases and are not returned.
--
-- $1 ids        bigint[]  ascending, no duplicates: `width_bucket` is then the position of an id
-- $2 fences     int[]     by position
-- $3 worker_id  uuid
-- $4 delays_s   float8[]  by position, seconds from now
update @schema@.job as j
set worker_id = null,
    lease_until = null,
    attempt = greatest(j.attempt - 1, 0),
    run_at = clock_timestamp() + ($4::float8[])[width_bucket(j.id, $1::bigint[])] * interval '1 second'
where j.id = any($1::bigint[])
    and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
    and j.worker_id is not distinct from $3
returning j.id
