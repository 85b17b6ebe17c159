-- forget_worker: no change of state of a job
--
-- Drop the row of a lapsed worker that holds nothing any more. Returns its id if it was dropped.
--
-- $1 worker_id  uuid
delete from @schema@.worker w
where w.worker_id = $1
    and w.lease_until < clock_timestamp()
    and not exists (select from @schema@.job j where j.worker_id = $1)
returning w.worker_id
