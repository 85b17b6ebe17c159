-- list_indexes: no change of state
--
-- The indexes of the schema's tables, and whether each may be used. Those of partitions belong to their parent's, which
-- is not valid before all of them are.
--
-- $1 schema  text
select i.relname::text as name, t.relname::text as table_name, x.indisvalid and x.indisready as valid
from pg_catalog.pg_index x
join pg_catalog.pg_class i on i.oid = x.indexrelid
join pg_catalog.pg_class t on t.oid = x.indrelid
join pg_catalog.pg_namespace n on n.oid = t.relnamespace
where n.nspname = $1::text
    and not t.relispartition
    and t.relkind in ('r', 'p')
order by i.relname
