-- sum_kind_stats: no change of state
--
-- What became of the attempts of the last while, by queue and kind, with their durations as one histogram.
--
-- $1 window_s  float8  how far to look back, in seconds
with recent as materialized (
    select s.queue, s.kind, s.done, s.retried, s.dead, s.buckets, s.counts
    from @schema@.kind_stat s
    where s.at > now() - $1::float8 * interval '1 second'
        -- An end that nothing lies beyond: a range with two takes the index, with one statistics of yesterday may not.
        and s.at < now() + interval '1 minute'
), total as (
    select r.queue, r.kind, sum(r.done) as done, sum(r.retried) as retried, sum(r.dead) as dead
    from recent r
    group by r.queue, r.kind
), bucket as (
    select r.queue, r.kind, b.bucket, sum(b.count) as count
    from recent r
    cross join lateral unnest(r.buckets, r.counts) as b (bucket, count)
    group by r.queue, r.kind, b.bucket
), histogram as (
    select
        b.queue, b.kind, array_agg(b.bucket order by b.bucket) as buckets,
        array_agg(b.count order by b.bucket) as counts
    from bucket b
    group by b.queue, b.kind
)
select t.queue, t.kind, t.done, t.retried, t.dead, coalesce(h.buckets, '{}'), coalesce(h.counts, '{}')
from total t
left join histogram h on h.queue = t.queue and h.kind = t.kind
order by t.queue, t.kind
