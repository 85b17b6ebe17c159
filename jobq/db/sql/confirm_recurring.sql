-- confirm_recurring: no change of state
--
-- Say that code still declares these entries; not more often than once in five minutes, by however many workers.
--
-- $1 names  text[]
with stale as materialized (
    select r.name
    from @schema@.recurring r
    where r.name = any($1)
        and r.declared_at < clock_timestamp() - interval '5 minutes'
    for update skip locked
)
update @schema@.recurring r
set declared_at = clock_timestamp()
where r.name = any(array(select s.name from stale s))
