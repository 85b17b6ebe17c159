-- list_done: no change of state
--
-- The newest of the jobs that are done, as far as the history goes back; `reports.py` joins the filter.
--
-- $1 limit  int
select
    j.id, j.kind, j.queue, 'done' as state, j.priority, j.attempt, j.enqueued_at, null::timestamptz as run_at,
    j.claimed_at, j.finished_at, j.worker_id, w.host || ':' || w.pid as worker
from @schema@.done j
left join @schema@.worker w on w.worker_id = j.worker_id
where true /* filter */
order by j.id desc
limit $1::int
