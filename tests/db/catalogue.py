"""What a schema is made of, as text to be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import Conn

# Everything that a schema is made of, with the schema's name taken out: one line an object.
CATALOGUE = """
with members as (
    select c.oid, c.relname, c.relkind, c.reloptions, c.relpersistence, pg_get_partkeydef(c.oid) as partition_key,
        pg_get_expr(c.relpartbound, c.oid) as bound, pg_get_indexdef(c.oid) as index
    from pg_catalog.pg_class c
    where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1)
), lines as (
    select format('%s %s %s %s %s %s', relkind, relname, relpersistence, reloptions, partition_key, bound) as line
    from members
    union all
    select format('index %s %s', relname, index) from members where relkind in ('i', 'I')
    union all
    select format(
        'column %s.%s %s %s %s %s %s', m.relname, a.attnum, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
        a.attnotnull, a.attidentity, pg_catalog.pg_get_expr(d.adbin, d.adrelid)
    )
    from members m
    join pg_catalog.pg_attribute a on a.attrelid = m.oid and a.attnum > 0
    left join pg_catalog.pg_attrdef d on d.adrelid = m.oid and d.adnum = a.attnum
    union all
    select format('constraint %s.%s %s', m.relname, c.conname, pg_catalog.pg_get_constraintdef(c.oid))
    from members m join pg_catalog.pg_constraint c on c.conrelid = m.oid
    union all
    select pg_catalog.pg_get_functiondef(p.oid)
    from pg_catalog.pg_proc p
    where p.pronamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1)
)
select array(select replace(line, quote_ident($1), '@schema@') from lines order by 1)
"""


async def catalogue(conn: Conn, schema: str) -> list[str]:
    """Return one line for each object, column, constraint and function of *schema*."""
    lines: list[str] = await conn.fetchval(CATALOGUE, schema)
    return lines
