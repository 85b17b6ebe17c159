-- create_instance: no change of state
--
-- The schema, and the table that says which migrations it has.
do $create$
begin
    -- Asked first: `if not exists` wants the right to create schemas even where there is nothing to create.
    if to_regnamespace($name$@schema@$name$) is null then
        create schema @schema@;
    end if;
end
$create$;
create table if not exists @schema@.migration (
    version int primary key,
    name text not null,
    applied_at timestamptz not null default now()
)
