-- notify_sleepers: no change of state
--
-- Wake the claim loops that sleep on one of these queues, at commit; one notification a queue.
--
-- $1 queues  text[]
select @schema@.notify_sleepers($1::text[])
