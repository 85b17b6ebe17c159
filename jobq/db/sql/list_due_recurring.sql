-- list_due_recurring: no change of state
--
-- The entries whose time to be looked at has come, with what a decision about each needs; not those that are paused.
--
-- $1 limit  int
select
    r.name, r.revision, r.expression, r.zone, r.catch_up, extract(epoch from r.catch_up_within)::float8,
    r.catch_up_cap, r.overlap, r.decided_until, r.held_tick,
    exists (select from @schema@.job j where j.id = r.last_job_id) as is_busy, clock_timestamp()
from @schema@.recurring r
where r.look_at <= now()
    and r.paused_at is null
order by r.look_at
limit $1::int
