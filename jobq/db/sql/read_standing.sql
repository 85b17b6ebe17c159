-- read_standing: no change of state
--
-- What the instance says of itself: live workers and the longest rest of a lease, dead letters (counted up to the view's
-- limit) and since when the oldest lies there, and how old the first row of the current slot of the history is, in slots.
select
    (select count(*) from @schema@.v1_workers w where w.is_alive) as workers,
    (
        select extract(epoch from max(w.lease_until) - clock_timestamp())::float8
        from @schema@.v1_workers w
        where w.is_alive
    ) as lease_rest_s,
    (select coalesce(sum(d.letters), 0)::bigint from @schema@.v1_dead_by_kind d) as dead_letters,
    (select o.age_s from @schema@.v1_oldest_dead o) as oldest_dead_s,
    (
        select extract(epoch from now() - first.finished_at)::float8 / h.slot_s
        from @schema@.history h
        cross join lateral (
            -- Rows are only ever appended, so the first on the first page is among the oldest.
            select d.finished_at
            from @schema@.done d
            where d.slot = (floor(extract(epoch from now()) / h.slot_s)::bigint % 8)::smallint
            limit 1
        ) as first
        where h.slot_s > 0
    ) as history_age_slots
