-- enqueue_keyed: absent -> waiting
--
-- One job with an idempotency key, or with headers, otherwise as enqueue_job. If the key is taken, nothing is inserted
-- and the earlier job's id comes back, not created.
--
-- $1 kind             text
-- $2 payload          text         JSON object
-- $3 queue            text
-- $4 run_at           text         ISO 8601 with offset, or null
-- $5 delay_s          float8       seconds from the database's now, or null; used if $4 is null
-- $6 priority         int          0 first, 9 last
-- $7 idempotency_key  text         or null
-- $8 answers_for_s    float8       how long the key answers, in seconds
-- $9 max_attempts     int          or null: the handler's
-- $10 notify          boolean      wake sleeping claim loops
-- $11 headers         text         JSON object, or null
select e.id, e.created
from @schema@.enqueue(
    kind => $1,
    payload => $2::text::jsonb,
    queue => $3,
    run_at => coalesce($4::text::timestamptz, clock_timestamp() + $5::float8 * interval '1 second'),
    priority => $6,
    idempotency_key => $7,
    idempotency_for => $8::float8 * interval '1 second',
    max_attempts => $9,
    headers => $11::text::jsonb,
    notify => $10
) e
