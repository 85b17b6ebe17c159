-- lock_lapsed_keys: no change of state
--
-- One page of idempotency keys whose time is over, locked for purge_keys in the same transaction: nobody takes one over in
-- between. Returns (kind, key, until) by time; go on after the last one until a page is not full, and start over another
-- time. Keys of jobs that live on are passed, and not met again within one round.
--
-- $1 after  timestamptz  lapsed later than this; far in the past at the start of a round
-- $2 limit  int          keys a page
select k.kind, k.key, k.until
from @schema@.idempotency_key k
where k.until > $1
    and k.until < now()
order by k.until
limit $2::int
for update skip locked
