-- record_kind_stats: no change of state
--
-- Append a worker's counts since the last time, one row a kind.
--
-- $1 worker_id  uuid
-- $2 counts     text  JSON array of {queue, kind, done, retried, dead, durations: {bucket: count}}
insert into @schema@.kind_stat (at, worker_id, queue, kind, done, retried, dead, buckets, counts)
select
    clock_timestamp(), $1, c.queue, c.kind, c.done, c.retried, c.dead,
    array(select d.key::smallint from jsonb_each_text(c.durations) d order by d.key::smallint),
    array(select d.value::int from jsonb_each_text(c.durations) d order by d.key::smallint)
from jsonb_to_recordset($2::text::jsonb) as c (
    queue text, kind text, done int, retried int, dead int, durations jsonb
)
