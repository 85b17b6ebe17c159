-- redrive_jobs: dead -> waiting
--
-- Make dead letters ready again: the same id, attempts and crashes at zero, history of errors and the fence kept. A
-- dead letter whose idempotency key a newer job holds stays where it is. Returns (id, owner_id, queue): redriven where
-- both ids are the same, else owner_id is the job in the way. An id that is not a dead letter, or that another redrive
-- holds, is not returned.
--
-- $1 ids  bigint[]
with picked as materialized (
    select d.id, d.kind, d.queue, d.idempotency_key
    from @schema@.dead_letter d
    where d.id = any($1::bigint[])
    order by d.id
    for update skip locked
), first as materialized (
    -- One letter a key: the keys are taken within this statement, which does not see the jobs that it makes. In the
    -- order in which a bulk enqueue takes them, that of code points.
    select distinct on (p.kind collate "C", p.idempotency_key collate "C") p.id, p.kind, p.idempotency_key
    from picked p
    where p.idempotency_key is not null
    order by p.kind collate "C", p.idempotency_key collate "C", p.id
), taken as materialized (
    select f.kind, f.idempotency_key, @schema@.take_key(f.kind, f.idempotency_key, f.id, interval '0') as owner_id
    from first f
), owned as materialized (
    select p.id, p.queue, case when p.idempotency_key is null then p.id else t.owner_id end as owner_id
    from picked p
    left join taken t on t.kind = p.kind and t.idempotency_key = p.idempotency_key
), redriven as (
    delete from @schema@.dead_letter d
    where d.id = any(array(select o.id from owned o where o.owner_id = o.id))
    returning
        d.id, d.enqueued_at, d.first_failed_at, d.fence, d.redrives, d.max_attempts, d.priority, d.queue, d.kind,
        d.payload, d.errors, d.headers, d.idempotency_key
), waiting as (
    insert into @schema@.job (
        id, run_at, enqueued_at, first_failed_at, fence, redrives, max_attempts, priority, queue, kind, payload, errors,
        headers, idempotency_key
    )
    select
        r.id, clock_timestamp(), r.enqueued_at, r.first_failed_at, r.fence, r.redrives + 1, r.max_attempts, r.priority,
        r.queue, r.kind, r.payload, r.errors, r.headers, r.idempotency_key
    from redriven r
)
select o.id, o.owner_id, o.queue from owned o
