-- purge_incidents: no change of state
--
-- Forget incidents a day after they were seen last, longer than any quiet period, and a week after if they could not be
-- told; and after a week the hooks for which nobody looks any more. Returns how many incidents; a full page asks for
-- another.
--
-- $1 limit  int
with over as materialized (
    select i.ctid
    from @schema@.incident i
    where i.seen_at < now() - case when i.told_at is null then interval '7 days' else interval '1 day' end
    limit $1::int
    for update skip locked
), purged as (
    delete from @schema@.incident i
    where i.ctid = any(array(select o.ctid from over o))
    returning i.seen_at
), left_alone as materialized (
    select w.ctid
    from @schema@.dead_watch w
    where w.looked_at < now() - interval '7 days'
    for update skip locked
), unwatched as (
    delete from @schema@.dead_watch w
    where w.ctid = any(array(select l.ctid from left_alone l))
)
select count(*) from purged
