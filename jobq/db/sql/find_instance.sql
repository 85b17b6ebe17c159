-- find_instance: no change of state
--
-- Whether jobq is installed in the schema.
--
-- $1 schema  text
select exists (
    select from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1::text
        and c.relname = 'migration'
        and c.relkind = 'r'
)
