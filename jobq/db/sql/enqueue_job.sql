-- enqueue_job: absent -> waiting
--
-- One job without an idempotency key, in whatever transaction the connection is in: what most enqueues are, so it calls no
-- function; the caller has checked what `enqueue` checks. Everything is passed as text and cast here, so that no codec
-- that the caller has set on its connection touches it. A `run_at` in the past is stored as now. Returns the id.
--
-- $1 kind          text
-- $2 payload       text     JSON object
-- $3 queue         text
-- $4 run_at        text     ISO 8601 with offset, or null
-- $5 delay_s       float8   seconds from the database's now, or null; used if $4 is null
-- $6 priority      int      0 first, 9 last
-- $7 max_attempts  int      or null: the handler's
-- $8 notify        boolean  wake sleeping claim loops
insert into @schema@.job (kind, payload, queue, run_at, enqueued_at, priority, max_attempts)
select
    $1::text, $2::text::jsonb, $3::text,
    greatest(coalesce($4::text::timestamptz, clock.now + $5::float8 * interval '1 second'), clock.now), clock.now,
    $6::int, $7::int
from (select clock_timestamp() as now offset 0) as clock
returning
    id,
    -- As in `notify_sleepers`, for the one queue: only if somebody asked for it, the job is due, and the server's queue of
    -- notifications has room (last, because it takes a lock). It stands here, not in a `with` beside the insert, because
    -- an enqueue is so short that the plan for those was a fifth of its cost.
    case
        when $8::boolean
            and run_at <= enqueued_at
            and exists (select from @schema@.sleeper s where s.queue = $3::text and s.until > clock_timestamp())
            and pg_notification_queue_usage() < 0.5
        then pg_notify((parse_ident($name$@schema@$name$))[1], $3::text)
    end as notified
