-- fall_asleep: no change of state
--
-- From now on an enqueue into this queue notifies. Counts only until its time, so that a worker that died asks for
-- nothing. After this the caller has to look once more: a job committed in between saw no sleeper.
--
-- $1 queue      text
-- $2 worker_id  uuid
-- $3 loop       text    which claim loop of the worker
-- $4 for_s      float8  seconds
insert into @schema@.sleeper as s (queue, worker_id, loop, until)
values ($1, $2, $3, clock_timestamp() + $4::float8 * interval '1 second')
on conflict (queue, worker_id, loop) do update
set until = excluded.until
