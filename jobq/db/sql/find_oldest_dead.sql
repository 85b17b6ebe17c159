-- find_oldest_dead: no change of state
--
-- How many seconds ago the oldest dead letter died; no row if there is none.
select extract(epoch from now() - d.died_at)::float8
from @schema@.dead_letter d
order by d.died_at
limit 1
