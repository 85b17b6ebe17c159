-- list_orphans: no change of state
--
-- Running jobs whose own lease has lapsed, or whose worker has no row: what a live worker forgot, a claim that came to the
-- server when its worker had ended. Walks the held index, so it is asked for rarely. Returns (id, fence).
--
-- $1 limit  int
select j.id, j.fence
from @schema@.job j
where j.worker_id is not null
    and (
        j.lease_until < clock_timestamp()
        or not exists (select from @schema@.worker w where w.worker_id = j.worker_id)
    )
-- Any would do, but without this order the planner would scan the table.
order by j.worker_id
limit $1::int
