-- purge_kind_stats: no change of state
--
-- Forget counts older than a day. Returns how many rows; a full page asks for another.
--
-- $1 limit  int
with old as materialized (
    select s.ctid
    from @schema@.kind_stat s
    where s.at < now() - interval '1 day'
    order by s.at
    limit $1::int
    for update skip locked
), purged as (
    delete from @schema@.kind_stat s
    where s.ctid = any(array(select o.ctid from old o))
    returning s.at
)
select count(*) from purged
