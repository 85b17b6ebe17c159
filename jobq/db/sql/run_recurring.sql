-- run_recurring: absent -> waiting
--
-- Enqueue the job of an entry now, beside its ticks, paused or not; unless its runs must not overlap and one is
-- unfinished. Returns the job's id, or no row.
--
-- $1 name  text
with clock as materialized (
    select clock_timestamp() as now
), entry as materialized (
    select r.name, r.kind, r.payload, r.queue, r.priority, r.max_attempts
    from @schema@.recurring r
    where r.name = $1
        and (r.overlap = 'allow' or not exists (select from @schema@.job j where j.id = r.last_job_id))
    for update
), added as (
    insert into @schema@.job (kind, payload, queue, run_at, enqueued_at, priority, max_attempts, headers)
    select
        e.kind, e.payload, e.queue, c.now, c.now, e.priority, e.max_attempts, jsonb_build_object('recurring', e.name)
    from entry e
    cross join clock c
    returning id, queue
), noted as (
    -- An entry whose runs may overlap keeps the job of its tick that lies ahead, which a change withdraws.
    update @schema@.recurring r
    set last_job_id = a.id,
        revision = r.revision + 1
    from added a
    where r.name = $1
        and r.overlap <> 'allow'
    returning r.name
)
select a.id, @schema@.notify_sleepers(array[a.queue]), (select count(*) from noted)
from added a
