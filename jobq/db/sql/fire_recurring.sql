-- fire_recurring: absent -> waiting
--
-- A job for each tick. Write what was decided about an entry, if nobody has written since it was read: the entry is moved on and the jobs are
-- there, or neither. Of many workers that have read the same, one does. A tick that is over is run now. Returns one row:
-- whether the entry was still as it was read, and the ids of the jobs.
--
-- The times are the database's: read from it, and handed back as ticks of the calendar.
--
-- $1 name           text
-- $2 revision       bigint         as it was read
-- $3 ticks          timestamptz[]  ascending
-- $4 held_tick      timestamptz    or null
-- $5 decided_until  timestamptz
-- $6 next_tick      timestamptz
-- $7 look_at        timestamptz
-- $8 missed         bigint
-- $9 missed_tick    timestamptz    or null
-- $10 skipped       bigint
with clock as materialized (
    select clock_timestamp() as now
), drawn as materialized (
    select t.tick, nextval($name$@schema@.job_id_seq$name$) as id
    from unnest($3::timestamptz[]) as t (tick)
), mine as materialized (
    -- Passed over while somebody changes it: nobody waits for a lock here.
    select r.name
    from @schema@.recurring r
    where r.name = $1
        and r.revision = $2
        and r.paused_at is null
    for update skip locked
), entry as (
    update @schema@.recurring r
    set held_tick = $4,
        decided_until = $5,
        next_tick = $6,
        look_at = $7,
        missed = r.missed + $8::bigint,
        missed_tick = coalesce($9, r.missed_tick),
        skipped = r.skipped + $10::bigint,
        last_tick = coalesce((select max(d.tick) from drawn d), r.last_tick),
        last_job_id = coalesce((select max(d.id) from drawn d), r.last_job_id),
        fault = null,
        revision = r.revision + 1
    where r.name = (select m.name from mine m)
    returning r.name, r.kind, r.payload, r.queue, r.priority, r.max_attempts
), added as (
    insert into @schema@.job (id, kind, payload, queue, run_at, enqueued_at, priority, max_attempts, headers)
    select
        d.id, e.kind, e.payload, e.queue, greatest(d.tick, c.now), c.now, e.priority, e.max_attempts,
        jsonb_build_object('recurring', e.name, 'tick', d.tick)
    from drawn d
    cross join entry e
    cross join clock c
    returning id, queue, run_at, enqueued_at
)
select
    exists (select from entry), array(select a.id from added a order by a.id),
    -- Whoever sleeps is woken for what runs now.
    (
        select @schema@.notify_sleepers(array_agg(distinct a.queue))
        from added a
        where a.run_at <= a.enqueued_at
        having count(*) > 0
    )
