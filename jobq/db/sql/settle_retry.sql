-- settle_retry: running -> waiting
--
-- The attempt failed and counts: record the error and wait for the next one. Rows that do not match are lost leases and
-- are not returned.
--
-- $1 ids        bigint[]  ascending, no duplicates: `width_bucket` is then the position of an id
-- $2 fences     int[]     by position
-- $3 worker_id  uuid
-- $4 delays_s   float8[]  by position, seconds from now
-- $5 errors     text[]    by position: a JSON object {type, message, traceback, fingerprint}
update @schema@.job as j
set worker_id = null,
    lease_until = null,
    run_at = clock_timestamp() + ($4::float8[])[width_bucket(j.id, $1::bigint[])] * interval '1 second',
    first_failed_at = coalesce(j.first_failed_at, clock_timestamp()),
    errors = @schema@.with_error(
        j.errors,
        jsonb_build_object('at', clock_timestamp(), 'attempt', j.attempt, 'worker_id', j.worker_id)
        || (($5::text[])[width_bucket(j.id, $1::bigint[])])::jsonb
    )
where j.id = any($1::bigint[])
    and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
    and j.worker_id is not distinct from $3
returning j.id
