-- list_holders: no change of state
--
-- Who keeps vacuum from removing dead rows of this database, and since when, in seconds (null of a replica, which only
-- says which transaction its oldest reader sees) and in transactions. Of others' sessions only a member of
-- pg_read_all_stats sees more than that they are there: those are not listed.
select
    'session' as what, a.pid::text as name, coalesce(a.usename, '?')::text as owner, a.application_name as application,
    coalesce(a.state, '?') as state, extract(epoch from clock_timestamp() - a.xact_start)::float8 as age_s,
    age(coalesce(a.backend_xmin, a.backend_xid)) as transactions
from pg_catalog.pg_stat_activity a
where a.datname = current_database()
    and a.pid <> pg_backend_pid()
    and coalesce(a.backend_xmin, a.backend_xid) is not null
    -- Another vacuum holds nothing back.
    and a.backend_type <> 'autovacuum worker'
union all
select
    'prepared transaction', p.gid, p.owner::text, '', 'prepared',
    extract(epoch from clock_timestamp() - p.prepared)::float8, age(p.transaction)
from pg_catalog.pg_prepared_xacts p
where p.database = current_database()
union all
select
    'replica', coalesce(r.application_name, '?'), coalesce(r.usename, '?')::text, '', coalesce(r.state, '?'), null,
    age(r.backend_xmin)
from pg_catalog.pg_stat_replication r
where r.backend_xmin is not null
order by transactions desc
