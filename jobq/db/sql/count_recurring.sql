-- count_recurring: no change of state
--
-- How many recurring entries are in each state, as the view says.
select v.state, count(*)
from @schema@.v1_recurring v
group by v.state
