-- beat: no change of state of a job
--
-- The worker's lease: say that this process lives, and what it runs. A row that was reaped meanwhile is made again.
--
-- $1 worker_id  uuid
-- $2 lease_s    float8  the worker's lease, in seconds
-- $3 pid        int
-- $4 host       text
-- $5 version    text    of jobq
-- $6 queues     text[]
-- $7 kinds      text[]
-- $8 slots      text    JSON array of {kinds, by_queue: {queue: count}}: which kinds share how many slots
insert into @schema@.worker as w (worker_id, lease_until, started_at, pid, host, version, queues, kinds, slots)
values ($1, clock_timestamp() + $2::float8 * interval '1 second', clock_timestamp(), $3, $4, $5, $6, $7, $8::text::jsonb)
on conflict (worker_id) do update
set lease_until = excluded.lease_until
