-- fault_recurring: no change of state
--
-- Note why an entry could not be looked at, or its tick not be enqueued, and when to try again. Its ticks stay owed.
--
-- $1 name      text
-- $2 revision  bigint  as it was read
-- $3 fault     text
-- $4 pause_s   float8  seconds until the next try
with mine as materialized (
    select r.name
    from @schema@.recurring r
    where r.name = $1
        and r.revision = $2
    for update skip locked
)
update @schema@.recurring r
set fault = $3,
    look_at = clock_timestamp() + $4::float8 * interval '1 second',
    revision = r.revision + 1
where r.name = (select m.name from mine m)
returning true
