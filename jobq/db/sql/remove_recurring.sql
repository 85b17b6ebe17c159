-- remove_recurring: waiting -> absent
--
-- Drop an entry for good. The trigger withdraws the job that waits for its tick; those whose tick has come stay. Returns
-- whether it was there.
--
-- $1 name  text
delete from @schema@.recurring r
where r.name = $1
returning true
