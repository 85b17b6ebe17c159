-- list_kinds: no change of state
--
-- What became of the attempts of the last while, by queue and kind, as the view says.
--
-- $1 window_s  int  one of the view's windows, in seconds
select r.queue, r.kind, r.done, r.retried, r.dead, r.failure_rate, r.p50_ms, r.p95_ms
from @schema@.v1_rates r
where r.window_s = $1::int
order by r.queue, r.kind
