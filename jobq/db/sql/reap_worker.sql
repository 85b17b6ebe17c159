-- reap_worker: running -> waiting
--
-- Take jobs from a worker whose lease has lapsed, one page. Judges nothing: counts a crash, records the loss and lets the
-- job wait a moment; the next claim that knows the kind decides. The condition is repeated under a lock of the worker's
-- row, so that a beat in between wins, and one that comes during this statement waits for it. Returns
-- (id, kind, attempt).
--
-- $1 worker_id  uuid
-- $2 pause_s    float8  at most this long until the next attempt, jittered
-- $3 limit      int     jobs a page
with lapsed as materialized (
    select w.worker_id
    from @schema@.worker w
    where w.worker_id = $1
        and w.lease_until < clock_timestamp()
    for update skip locked
), held as materialized (
    select j.id
    from @schema@.job j
    where j.worker_id = $1
        and exists (select from lapsed)
    limit $3::int
    for update of j skip locked
)
update @schema@.job as j
set worker_id = null,
    lease_until = null,
    crashes = j.crashes + 1,
    lone_crashes = j.lone_crashes + (j.alone_fence is not distinct from j.fence)::int,
    run_at = clock_timestamp() + random() * $2::float8 * interval '1 second',
    first_failed_at = coalesce(j.first_failed_at, clock_timestamp()),
    errors = @schema@.with_error(
        j.errors,
        jsonb_build_object(
            'at', clock_timestamp(), 'attempt', j.attempt, 'worker_id', j.worker_id, 'type', 'WorkerLost',
            'message', 'the worker ended or fell silent during this attempt', 'traceback', '',
            'fingerprint', 'worker-lost'
        )
    )
where j.id = any(array(select h.id from held h))
    and j.worker_id is not distinct from $1
returning j.id, j.kind, j.attempt
