-- list_queues: no change of state
--
-- How each queue stands, as the views say: counts end at their limit, and the age is null where nothing is ready.
select
    d.queue, case when o.run_at is not null then o.age_s end as oldest_ready_s, d.ready, d.scheduled, d.running, d.dead,
    d.workers
from @schema@.v1_queue_depth d
left join @schema@.v1_oldest_ready o on o.queue = d.queue
