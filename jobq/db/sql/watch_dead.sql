-- watch_dead: no change of state
--
-- Begin to watch the dead letters for a hook, with those that die from now on. For one that is watched already, by
-- whatever worker, nothing changes.
--
-- $1 hook  text
insert into @schema@.dead_watch (hook, looked_at, read_to)
select $1, now.at - interval '1 day', now.at
from (select clock_timestamp() as at) as now
on conflict do nothing
