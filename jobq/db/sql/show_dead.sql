-- show_dead: no change of state
--
-- $1 id  bigint
select
    d.id, d.kind, d.queue, d.reason, d.error_type, d.error_message, d.fingerprint, d.attempt, d.crashes, d.redrives,
    d.first_failed_at, d.died_at, d.priority, d.max_attempts, d.fence, d.enqueued_at, d.run_at, d.claimed_at,
    d.idempotency_key, d.payload, d.errors, d.headers
from @schema@.dead_letter d
where d.id = $1
