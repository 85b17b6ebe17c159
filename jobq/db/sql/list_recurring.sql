-- list_recurring: no change of state
--
-- How the entries stand, as the view says, by name, with the database's time.
select
    v.name, v.expression, v.zone, v.kind, v.queue, v.next_tick, v.last_tick, v.last_job_id, v.missed, v.skipped,
    v.state, v.should_have_run_at, v.fault, v.paused_at, v.paused_by, v.paused_why, v.is_forsaken, now()
from @schema@.v1_recurring v
order by v.name
