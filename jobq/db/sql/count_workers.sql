-- count_workers: no change of state
--
-- Each queue that a live worker serves, and how many serve it; in the row without a queue, how many workers are alive.
select served.queue, count(distinct w.worker_id)
from @schema@.worker w
cross join lateral unnest(w.queues || null::text) as served (queue)
where w.lease_until >= now()
group by served.queue
