-- list_tables: no change of state
--
-- The tables of the schema: who owns them, whether autovacuum may work on them, how many rows live and are dead, as the
-- server has counted, and how long ago the last vacuum ended, null if there was none.
--
-- $1 schema  text
select
    c.relname::text as name,
    pg_get_userbyid(c.relowner)::text as owner,
    coalesce(
        (
            select o.option_value::boolean
            from pg_catalog.pg_options_to_table(c.reloptions) o
            where o.option_name = 'autovacuum_enabled'
        ),
        true
    ) as autovacuum,
    pg_stat_get_live_tuples(c.oid) as live,
    pg_stat_get_dead_tuples(c.oid) as dead,
    extract(
        epoch from clock_timestamp()
        - greatest(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid))
    )::float8 as vacuumed_s
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1::text
    and c.relkind in ('r', 'p')
order by c.relname
