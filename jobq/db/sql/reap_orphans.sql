-- reap_orphans: running -> waiting
--
-- Take back jobs whose own lease has lapsed or whose worker has no row, sighted twice by the caller. As reap_worker
-- otherwise; the lease is checked again under the lock, so that a renewal in between wins; a waiting job has none. Returns
-- (id, kind, attempt).
--
-- $1 ids      bigint[]  ascending, no duplicates: `width_bucket` is then the position of an id
-- $2 fences   int[]     by position
-- $3 pause_s  float8    at most this long until the next attempt, jittered
with held as materialized (
    select j.id
    from @schema@.job j
    where j.id = any($1::bigint[])
        and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]
        and j.lease_until is not null
        and (
            j.lease_until < clock_timestamp()
            or not exists (select from @schema@.worker w where w.worker_id = j.worker_id)
        )
    for update skip locked
)
update @schema@.job as j
set worker_id = null,
    lease_until = null,
    crashes = j.crashes + 1,
    lone_crashes = j.lone_crashes + (j.alone_fence is not distinct from j.fence)::int,
    run_at = clock_timestamp() + random() * $3::float8 * interval '1 second',
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
    and j.lease_until is not null
returning j.id, j.kind, j.attempt
