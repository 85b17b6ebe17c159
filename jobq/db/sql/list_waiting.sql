-- list_waiting: no change of state
--
-- The newest of the jobs that wait; `reports.py` joins the filter.
--
-- That they wait is asked in a way that no index serves: by `job_waiting` the plan would sort all that waits, instead of
-- going down the ids.
--
-- $1 limit  int
select
    j.id, j.kind, j.queue, case when j.run_at <= now() then 'ready' else 'scheduled' end as state, j.priority,
    j.attempt, j.enqueued_at, j.run_at, j.claimed_at, null::timestamptz as finished_at, null::uuid as worker_id,
    null::text as worker
from @schema@.job j
where case when j.worker_id is null then true else false end /* filter */
order by j.id desc
limit $1::int
