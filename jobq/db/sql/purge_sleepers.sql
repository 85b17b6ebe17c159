-- purge_sleepers: no change of state
--
-- Forget claim loops that have not renewed their sleep for an hour: their worker is gone.
delete from @schema@.sleeper s
where s.until < now() - interval '1 hour'
