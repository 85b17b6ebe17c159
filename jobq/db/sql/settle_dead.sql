-- settle_dead: running -> dead
--
-- Move jobs that failed for good to the dead letters, whole, with the last error. Rows that do not match are lost
-- leases and are not returned.
--
-- $1 ids        bigint[]   ascending, no duplicates: `width_bucket` is then the position of an id
-- $2 fences     int[]      by position
-- $3 worker_id  uuid
-- $4 started    boolean[]  by position: false if the handler was never called, so that the attempt does not count
-- $5 reasons    text[]     by position
-- $6 errors     text[]     by position: a JSON object {type, message, traceback, fingerprint}
with failed as (
    delete from @schema@.job as j
    where j.id = any($1::bigint[])
        and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
        and j.worker_id is not distinct from $3
    returning
        j.id, j.run_at, j.enqueued_at, j.claimed_at, j.first_failed_at, j.worker_id, j.crashes, j.fence, j.redrives,
        j.max_attempts, j.priority, j.queue, j.kind, j.payload, j.errors, j.headers, j.idempotency_key,
        j.attempt - (not ($4::boolean[])[width_bucket(j.id, $1::bigint[])])::int as attempt,
        width_bucket(j.id, $1::bigint[]) as place,
        clock_timestamp() as died_at
), judged as (
    select f.*, ($5::text[])[f.place] as reason, (($6::text[])[f.place])::jsonb as error
    from failed f
), dead as (
    insert into @schema@.dead_letter (
        id, run_at, enqueued_at, claimed_at, first_failed_at, died_at, worker_id, attempt, crashes, fence, redrives,
        max_attempts, priority, queue, kind, reason, error_type, error_message, fingerprint, payload, errors, headers,
        idempotency_key
    )
    select
        j.id, j.run_at, j.enqueued_at, j.claimed_at, coalesce(j.first_failed_at, j.died_at), j.died_at, j.worker_id,
        j.attempt, j.crashes, j.fence, j.redrives, j.max_attempts, j.priority, j.queue, j.kind, j.reason,
        j.error ->> 'type', j.error ->> 'message', j.error ->> 'fingerprint', j.payload,
        @schema@.with_error(
            j.errors,
            jsonb_build_object('at', j.died_at, 'attempt', j.attempt, 'worker_id', j.worker_id) || j.error
        ),
        j.headers, j.idempotency_key
    from judged j
)
select id from failed
