-- 0003: a finished job keeps the record of its earlier runs; a full notification queue fails nobody's commit.
--
-- Frozen: later changes are migrations of their own.

-- Why a job that is done ran more than once, as its row said: null for what was done at the first run.
alter table @schema@.done add column errors jsonb;

-- notify_sleepers: wake the claim loops that asked to be woken for one of these queues; nobody else pays.
--
-- The channel is the schema's own name, the notification's payload the queue: two instances never meet, and both
-- fit the limits of NOTIFY (63 and 7,999 bytes). A commit that finds the server's notification queue full fails, and
-- with it the caller's order: long before that nobody is woken any more, and the poll finds the job.
create or replace function @schema@.notify_sleepers(queues text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $notify_sleepers$
begin
    perform pg_notify((parse_ident($name$@schema@$name$))[1], asleep.queue)
    from (
        select distinct s.queue
        from @schema@.sleeper s
        where s.queue = any(queues) and s.until > clock_timestamp()
    ) asleep
    where pg_notification_queue_usage() < 0.5;
end
$notify_sleepers$;
