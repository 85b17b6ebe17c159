-- say_goodbye: no change of state of a job
--
-- The worker has ended in order: nobody need wait for its lease. What it still holds is found by the jobs' own leases.
--
-- $1 worker_id  uuid
delete from @schema@.worker w
where w.worker_id = $1
