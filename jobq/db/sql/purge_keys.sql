-- purge_keys: no change of state
--
-- Forget idempotency keys whose time is over and whose job no longer lives, looking at one page of lapsed keys. Returns
-- (seen, last_until): go on after `last_until` until a page is not full, then start over another time. Keys of jobs that
-- live on are passed, not met again within one round.
--
-- $1 after  timestamptz  lapsed later than this; '-infinity' at the start of a round
-- $2 limit  int          keys a page
with page as materialized (
    select k.kind, k.key, k.until, k.job_id
    from @schema@.idempotency_key k
    where k.until > $1
        and k.until < now()
    order by k.until
    limit $2
    for update skip locked
), purged as (
    delete from @schema@.idempotency_key k
    using page p
    where k.kind = p.kind
        and k.key = p.key
        and not exists (select from @schema@.job j where j.id = p.job_id)
)
select count(*) as seen, max(p.until) as last_until from page p
