-- pause_recurring: waiting -> absent
--
-- No tick of this entry is enqueued any more, and the trigger withdraws the job that waits for the next. Who paused it
-- first, and why, stays. Returns whether it was not paused.
--
-- $1 name  text
-- $2 by    text
-- $3 why   text
update @schema@.recurring r
set paused_at = clock_timestamp(),
    paused_by = $2,
    paused_why = $3
where r.name = $1
    and r.paused_at is null
returning true
