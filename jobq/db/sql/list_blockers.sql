-- list_blockers: no change of state
--
-- The sessions, themselves not waiting, that are in the way of others: those that hold a lock on a table of this schema
-- that no write goes past, and those that somebody of jobq's, or who wants such a table, waits for. Returns who it is,
-- what it does, for how long its transaction has been open, for how long somebody has waited for it (0: nobody does), the
-- tables that it has locked, and whether it shuts one of them to readers too.
--
-- $1 schema  name
with ours as (
    select c.oid, c.relname::text as name
    from pg_catalog.pg_class c
    where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1)
), waiting as (
    select l.pid, min(l.waitstart) as since, bool_or(l.relation in (select o.oid from ours o)) as wants_ours
    from pg_catalog.pg_locks l
    where not l.granted
    group by l.pid
), locking as (
    select l.pid, array_agg(distinct o.name order by o.name) as tables, bool_or(l.mode = 'AccessExclusiveLock') as shuts_out
    from pg_catalog.pg_locks l
    join ours o on o.oid = l.relation
    where l.granted
        and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    group by l.pid
), delaying as (
    select blocking.pid, min(w.since) as since
    from waiting w
    join pg_catalog.pg_stat_activity a on a.pid = w.pid
    cross join lateral unnest(pg_blocking_pids(w.pid)) as blocking (pid)
    where a.datname = current_database()
        and (w.wants_ours or a.application_name like 'jobq %')
    group by blocking.pid
)
select
    b.pid, coalesce(b.usename, '?')::text as owner, b.application_name as application, coalesce(b.state, '?') as state,
    extract(epoch from clock_timestamp() - b.xact_start)::float8 as open_s,
    coalesce(extract(epoch from clock_timestamp() - d.since), 0)::float8 as waited_s,
    coalesce(l.tables, '{}') as tables, coalesce(l.shuts_out, false) as shuts_out
from locking l
full join delaying d using (pid)
join pg_catalog.pg_stat_activity b using (pid)
where b.pid <> pg_backend_pid()
    and b.datname = current_database()
    and not exists (select from waiting w where w.pid = b.pid)
order by b.xact_start nulls last, b.pid
