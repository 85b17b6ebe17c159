-- count_workers: no change of state
--
-- How many workers are alive, whatever they serve.
select count(*)
from @schema@.v1_workers w
where w.is_alive
