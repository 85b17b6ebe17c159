-- find_oldest_dead: no change of state
--
-- How many seconds ago the oldest dead letter died, as the view says; no row if there is none.
select o.age_s
from @schema@.v1_oldest_dead o
