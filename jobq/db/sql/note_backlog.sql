-- note_backlog: no change of state
--
-- Note an incident for each queue that has fallen behind, as a worker has just read it: a new one if its last one was told
-- and the queue was not seen behind for the quiet period, else the one that is there. Waits for another worker that notes
-- the same queue, which takes a moment; in the order of their names, so that two cannot wait for each other.
--
-- $1 hook     text
-- $2 queues   text[]
-- $3 facts    text[]  by position: a JSON object
-- $4 quiet_s  float8
insert into @schema@.incident as i (hook, what, subject, since, seen_at, facts)
select $1, 'backlog', b.queue, now.at, now.at, b.facts::jsonb
from (select clock_timestamp() as at) as now
cross join unnest($2::text[], $3::text[]) as b (queue, facts)
order by b.queue
on conflict (hook, what, subject) do update
set
    since = case
        when i.told_at is not null and excluded.since > i.seen_at + $4::float8 * interval '1 second' then excluded.since
        else i.since
    end,
    seen_at = greatest(i.seen_at, excluded.seen_at),
    told_at = case
        when excluded.since > i.seen_at + $4::float8 * interval '1 second' then null
        else i.told_at
    end,
    facts = excluded.facts
