-- settle_released: running -> waiting
--
-- Hand jobs back with their attempt: after a drain or a lapsed lease (no delay), a Snooze, or unstarted. Nothing has
-- failed, so `first_failed_at` stays; but what a drain or a lapse has cancelled runs again, and its record says why. The
-- fence keeps its value, so that what the ended attempt still writes does not match after the next claim. Rows that do
-- not match are lost leases and are not returned.
--
-- $1 ids        bigint[]  ascending, no duplicates: `width_bucket` is then the position of an id
-- $2 fences     int[]     by position
-- $3 worker_id  uuid
-- $4 delays_s   float8[]  by position, seconds from now
-- $5 records    text[]    by position: a JSON object {type, message, traceback, fingerprint}, or null to record nothing
update @schema@.job as j
set worker_id = null,
    lease_until = null,
    attempt = greatest(j.attempt - 1, 0),
    run_at = clock_timestamp() + ($4::float8[])[width_bucket(j.id, $1::bigint[])] * interval '1 second',
    errors = case
        when ($5::text[])[width_bucket(j.id, $1::bigint[])] is null then j.errors
        else @schema@.with_error(
            -- Where there is no room, the oldest of the same type makes it: a hundred deploys push out one failure.
            case
                when jsonb_array_length(j.errors) > 20 then coalesce(
                    j.errors - (
                        select min(e.place)::int - 1
                        from jsonb_array_elements(j.errors) with ordinality as e (record, place)
                        where e.place > 1
                            and e.record ->> 'type' = (($5::text[])[width_bucket(j.id, $1::bigint[])])::jsonb ->> 'type'
                    ),
                    j.errors
                )
                else j.errors
            end,
            jsonb_build_object('at', clock_timestamp(), 'attempt', j.attempt, 'worker_id', j.worker_id)
            || (($5::text[])[width_bucket(j.id, $1::bigint[])])::jsonb
        )
    end
where j.id = any($1::bigint[])
    and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
    and j.worker_id is not distinct from $3
returning j.id
