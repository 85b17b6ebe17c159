-- isolate_job: running -> running
--
-- This attempt is the only one in its worker from here on: if the worker dies now, this job is to blame. Returns the id
-- if the attempt still owns the job.
--
-- $1 id         bigint
-- $2 fence      int
-- $3 worker_id  uuid
update @schema@.job as j
set alone_fence = j.fence
where j.id = $1
    and j.fence = $2
    and j.worker_id is not distinct from $3
returning j.id
