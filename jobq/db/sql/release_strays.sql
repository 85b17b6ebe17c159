-- release_strays: running -> waiting
--
-- Hand back what bears this worker's id and is not in its hands: the rows of a claim whose answer was never seen. Their
-- attempt is returned. Returns (id, kind).
--
-- $1 worker_id  uuid
-- $2 in_hand    bigint[]  every job that the worker runs or has yet to settle
with strays as materialized (
    select j.id
    from @schema@.job j
    where j.worker_id = $1
        and j.id <> all($2::bigint[])
    for update skip locked
)
update @schema@.job as j
set worker_id = null,
    lease_until = null,
    attempt = greatest(j.attempt - 1, 0),
    run_at = clock_timestamp()
where j.id = any(array(select s.id from strays s))
    and j.worker_id is not distinct from $1
returning j.id, j.kind
