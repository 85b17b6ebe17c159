-- list_unserved: no change of state
--
-- Kinds that are ready in a queue in which no live worker takes them, as the view says.
select u.queue, u.kind
from @schema@.v1_unserved u
order by u.queue, u.kind
