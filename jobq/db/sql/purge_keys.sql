-- purge_keys: no change of state
--
-- Forget those of the locked keys whose job no longer lives. A statement after the lock: its snapshot sees the job of
-- whoever took a key over just before.
--
-- $1 kinds  text[]
-- $2 keys   text[]  by position
delete from @schema@.idempotency_key k
using unnest($1::text[], $2::text[]) as lapsed (kind, key)
where k.kind = lapsed.kind
    and k.key = lapsed.key
    and not exists (select from @schema@.job j where j.id = k.job_id)
