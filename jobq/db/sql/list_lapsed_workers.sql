-- list_lapsed_workers: no change of state
--
-- Workers whose lease has lapsed. The table is small: one row a live process.
select w.worker_id
from @schema@.worker w
where w.lease_until < clock_timestamp()
