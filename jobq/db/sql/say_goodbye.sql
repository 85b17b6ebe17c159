-- say_goodbye: no change of state of a job
--
-- The worker has ended in order: nobody need wait for its lease. Unless it holds something after all, by a claim that it
-- never heard of: then its lease has to lapse.
--
-- $1 worker_id  uuid
delete from @schema@.worker w
where w.worker_id = $1
    and not exists (select from @schema@.job j where j.worker_id = $1)
