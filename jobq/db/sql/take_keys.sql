-- take_keys: no change of state of a job
--
-- Take each idempotency key for its job. Returns (id, owner_id): the same where the key is now the job's, another's id
-- where an earlier job answers for it. The caller has sorted the keys, and the function is called in that order, so
-- that two bulk enqueues with overlapping keys wait for each other in one direction only.
--
-- $1 ids            bigint[]  the jobs, by position
-- $2 kinds          text[]    by position
-- $3 keys           text[]    by position, sorted by (kind, key)
-- $4 answers_for_s  float8    seconds
select u.id, @schema@.take_key(u.kind, u.key, u.id, $4::float8 * interval '1 second') as owner_id
from unnest($1::bigint[], $2::text[], $3::text[]) as u (id, kind, key)
