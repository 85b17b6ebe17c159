-- list_orphans: no change of state
--
-- Running jobs whose own lease has lapsed: what a worker forgot, a claim whose answer was never seen, a worker without a
-- row. Walks the held index, so it is asked for rarely. Returns (id, fence).
--
-- $1 limit  int
select j.id, j.fence
from @schema@.job j
where j.worker_id is not null
    and j.lease_until < clock_timestamp()
-- Any would do, but without this order the planner would scan the table.
order by j.worker_id
limit $1::int
