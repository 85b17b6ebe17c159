-- settle_retry: running -> waiting
--
-- The attempt failed and counts: record the error and wait for the next one. Of the errors, the first and the last 20
-- are kept. Rows that do not match are lost leases and are not returned.
--
-- $1 ids        bigint[]  no duplicates
-- $2 fences     int[]     by position
-- $3 worker_id  uuid
-- $4 delays_s   float8[]  by position, seconds from now
-- $5 errors     text[]    by position: a JSON object {type, message, traceback, fingerprint}
update @schema@.job as j
set worker_id = null,
    lease_until = null,
    run_at = clock_timestamp() + ($4::float8[])[array_position($1::bigint[], j.id)] * interval '1 second',
    first_failed_at = coalesce(j.first_failed_at, clock_timestamp()),
    errors = case
        when j.errors is null then '[]'::jsonb
        when jsonb_array_length(j.errors) <= 20 then j.errors
        else jsonb_build_array(j.errors -> 0) || jsonb_path_query_array(j.errors, '$[2 to last]')
    end || jsonb_build_array(
        jsonb_build_object('at', clock_timestamp(), 'attempt', j.attempt, 'worker_id', j.worker_id)
        || (($5::text[])[array_position($1::bigint[], j.id)])::jsonb
    )
where j.id = any($1::bigint[])
    and j.fence = ($2::int[])[array_position($1::bigint[], j.id)]
    and j.worker_id = $3
returning j.id
