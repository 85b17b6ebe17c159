-- wake_up: no change of state
--
-- This claim loop looks by itself again: enqueues into the queue need not notify for it.
--
-- $1 queue      text
-- $2 worker_id  uuid
-- $3 loop       text  which claim loop of the worker
delete from @schema@.sleeper s
where s.queue = $1
    and s.worker_id = $2
    and s.loop = $3
