-- purge_sleepers: no change of state
--
-- Forget claim loops that have not renewed their sleep for an hour: their worker is gone. Returns how many; a full page asks
-- for another.
--
-- $1 limit  int
with gone as materialized (
    select s.ctid
    from @schema@.sleeper s
    where s.until < now() - interval '1 hour'
    limit $1::int
    for update skip locked
), purged as (
    delete from @schema@.sleeper s
    where s.ctid = any(array(select g.ctid from gone g))
    returning s.until
)
select count(*) from purged
