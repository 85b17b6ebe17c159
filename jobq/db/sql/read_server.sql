-- read_server: no change of state
--
-- What the server as a whole says of itself, to anybody; `may_see` whether this role sees what others' sessions do.
select
    clock_timestamp() as now,
    pg_backend_pid() as pid,
    current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes,
    current_setting('synchronous_commit') as synchronous_commit,
    current_setting('autovacuum') as autovacuum,
    pg_notification_queue_usage() as notification_queue,
    (
        select least(
            current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', true), '0')::int
            - (select sum(d.numbackends) from pg_catalog.pg_stat_database d),
            (
                select nullif(d.datconnlimit, -1) - s.numbackends
                from pg_catalog.pg_database d
                join pg_catalog.pg_stat_database s on s.datid = d.oid
                where d.datname = current_database()
            )
        )
    )::int as connections_left,
    (select count(*) from pg_catalog.pg_stat_replication r) as replicas,
    pg_has_role('pg_read_all_stats', 'usage') as may_see
