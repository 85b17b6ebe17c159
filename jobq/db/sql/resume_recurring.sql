-- resume_recurring: no change of state
--
-- Go on with the next tick: what came during the pause is not owed. Returns whether it was paused.
--
-- $1 name  text
update @schema@.recurring r
set paused_at = null,
    paused_by = null,
    paused_why = null
where r.name = $1
    and r.paused_at is not null
returning true
