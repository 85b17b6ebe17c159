-- declare_recurring: waiting -> absent
--
-- Add an entry, or let it ask for something else: then the trigger withdraws the job that waits for its tick. One that
-- asks for just that is left alone, and a pause stays. Returns true if anything was changed.
--
-- $1 name             text
-- $2 expression       text
-- $3 zone             text
-- $4 kind             text
-- $5 payload          text     JSON object
-- $6 queue            text
-- $7 priority         int
-- $8 max_attempts     int      or null
-- $9 catch_up         text
-- $10 within_s        float8   seconds
-- $11 cap             int      or null
-- $12 overlap         text
-- $13 is_code         boolean  declared in code, whose workers go on to say so
insert into @schema@.recurring (
    name, expression, zone, kind, payload, queue, priority, max_attempts, catch_up, catch_up_within, catch_up_cap,
    overlap, declared_at
)
select
    a.name, a.expression, a.zone, a.kind, a.payload, a.queue, a.priority, a.max_attempts, a.catch_up, a.within, a.cap,
    a.overlap, case when a.is_code then clock_timestamp() end
from (
    values (
        $1::text, $2::text, $3::text, $4::text, $5::text::jsonb, $6::text, $7::int, $8::int, $9::text,
        $10::float8 * interval '1 second', $11::int, $12::text, $13::boolean
    )
) as a (
    name, expression, zone, kind, payload, queue, priority, max_attempts, catch_up, within, cap, overlap, is_code
)
-- Looked at before, because a conflict takes a lock of the row also where it changes nothing.
where not exists (
    select
    from @schema@.recurring same
    where same.name = a.name
        and (
            same.expression, same.zone, same.kind, same.payload, same.queue, same.priority, same.max_attempts,
            same.catch_up, same.catch_up_within, same.catch_up_cap, same.overlap, same.declared_at is not null
        ) is not distinct from (
            a.expression, a.zone, a.kind, a.payload, a.queue, a.priority, a.max_attempts, a.catch_up, a.within, a.cap,
            a.overlap, a.is_code
        )
)
on conflict (name) do update
set expression = excluded.expression,
    zone = excluded.zone,
    kind = excluded.kind,
    payload = excluded.payload,
    queue = excluded.queue,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    catch_up = excluded.catch_up,
    catch_up_within = excluded.catch_up_within,
    catch_up_cap = excluded.catch_up_cap,
    overlap = excluded.overlap,
    declared_at = excluded.declared_at
returning true
