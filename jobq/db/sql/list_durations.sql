-- list_durations: no change of state
--
-- How long the attempts of each kind took lately, in all queues: the buckets of `core/histogram.py` and their counts.
--
-- $1 window_s  int  in seconds
select s.kind, b.bucket::int, sum(b.count)::bigint as count
from @schema@.kind_stat s
cross join lateral unnest(s.buckets, s.counts) as b (bucket, count)
where s.at > now() - make_interval(secs => $1::int)
    -- An end that nothing lies beyond: a range with two takes the index, with one statistics of yesterday may not.
    and s.at < now() + interval '1 minute'
group by s.kind, b.bucket
