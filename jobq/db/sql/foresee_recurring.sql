-- foresee_recurring: no change of state
--
-- In how many seconds an entry has to be looked at; no row if there is none that is not paused.
select greatest(extract(epoch from r.look_at - clock_timestamp()), 0)::float8
from @schema@.recurring r
where r.paused_at is null
order by r.look_at
limit 1
