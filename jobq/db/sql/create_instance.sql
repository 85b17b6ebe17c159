-- create_instance: no change of state
--
-- The schema, and the record of what was applied to it.
create schema if not exists @schema@;
create table if not exists @schema@.migration (
    version int primary key,
    name text not null,
    applied_at timestamptz not null default now()
)
