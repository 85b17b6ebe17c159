-- take_incidents: no change of state
--
-- Give a worker the incidents of a hook that are to be told, the oldest first, and nobody else until the lease is over:
-- those that nobody tells, and those whose teller has failed or fallen silent.
--
-- $1 hook       text
-- $2 what       text
-- $3 worker_id  uuid
-- $4 lease_s    float8  how long the worker has for it, in seconds
-- $5 limit      int
with due as materialized (
    select i.subject
    from @schema@.incident i
    where i.hook = $1
        and i.what = $2
        and i.told_at is null
        and coalesce(i.telling_until, '-infinity') <= clock_timestamp()
    order by i.since, i.subject
    limit $5::int
    for update skip locked
)
update @schema@.incident i
set
    telling_until = clock_timestamp() + $4::float8 * interval '1 second',
    telling_by = $3,
    tries = i.tries + 1
where i.hook = $1 and i.what = $2 and i.subject = any(array(select d.subject from due d))
returning i.subject, i.tries, i.since, i.seen_at, i.facts::text
