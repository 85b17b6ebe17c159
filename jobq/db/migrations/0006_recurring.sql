-- 0006: recurring entries: a row each, whose ticks are enqueued by whichever worker comes first.
--
-- Frozen: later changes are migrations of their own.

-- One row an entry. What it asks for stands before `declared_at`, what has become of it after that. Insert, update and
-- delete what it asks for in plain SQL; the trigger below sees to what follows from it.
create table @schema@.recurring (
    name text primary key,
    expression text not null,
    zone text not null default 'UTC',
    kind text not null,
    payload jsonb not null default '{}',
    queue text not null default 'default',
    priority int not null default 5,
    max_attempts int,
    catch_up text not null default 'last',
    catch_up_within interval not null default '1 hour',
    catch_up_cap int,
    overlap text not null default 'allow',
    paused_at timestamptz,
    paused_by text,
    paused_why text,
    -- When code last said that it declares this entry; null of one that was added at run time.
    declared_at timestamptz,
    added_at timestamptz not null default clock_timestamp(),
    -- Every tick up to here is decided. It only grows, but for a tick whose job is withdrawn.
    decided_until timestamptz not null default clock_timestamp(),
    look_at timestamptz not null default clock_timestamp(),
    next_tick timestamptz,
    -- The last tick that was enqueued, and its job; the job of a run by hand stands here too.
    last_tick timestamptz,
    last_job_id bigint,
    -- The tick that waits for the end of the previous run, of an entry whose overlap is 'queue'.
    held_tick timestamptz,
    -- The last tick that should have run and did not, and how many there were.
    missed_tick timestamptz,
    missed bigint not null default 0,
    skipped bigint not null default 0,
    -- Each write raises it, and demands the one that it has read: this decides which worker enqueues a tick.
    revision bigint not null default 0,
    fault text,
    constraint recurring_name check (name ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$'),
    -- Five fields, or a word for them. Whether they name a time at all is read by the worker that looks first.
    constraint recurring_expression check (
        expression ~* '^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$'
        or (expression ~ '^[0-9A-Za-z*,/#-]+( [0-9A-Za-z*,/#-]+){4}$' and length(expression) <= 200)
    ),
    constraint recurring_zone check (zone ~ '^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$'),
    constraint recurring_kind check (kind ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$'),
    constraint recurring_queue check (queue ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,59}$'),
    constraint recurring_payload check (jsonb_typeof(payload) = 'object' and pg_column_size(payload) <= 2097152),
    constraint recurring_priority check (priority between 0 and 9),
    constraint recurring_max_attempts check (max_attempts >= 1),
    constraint recurring_catch_up check (catch_up in ('last', 'all', 'none')),
    constraint recurring_catch_up_within check (catch_up_within between interval '1 minute' and interval '366 days'),
    constraint recurring_catch_up_cap check ((catch_up = 'all') = (catch_up_cap is not null)),
    constraint recurring_catch_up_cap_range check (catch_up_cap between 1 and 1000),
    constraint recurring_overlap check (overlap in ('allow', 'skip', 'queue')),
    -- To catch up with several at once is to let them overlap.
    constraint recurring_catch_up_overlap check (catch_up <> 'all' or overlap = 'allow'),
    constraint recurring_paused check (
        (paused_at is null) = (paused_by is null) and (paused_at is null) = (paused_why is null)
    )
) with (fillfactor = 70);

create index recurring_look on @schema@.recurring (look_at);

-- follow_recurring: what follows from a change of what an entry asks for.
--
-- A changed expression or zone holds from now on, and so does an entry that is no longer paused: nothing of the past is
-- owed. Whatever is changed, paused or deleted, the job that waits for its tick is withdrawn, if it has not started, and
-- the tick is decided anew. The statements that workers write ticks with name none of the trigger's columns.
create function @schema@.follow_recurring() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $follow_recurring$
declare
    asked_at constant timestamptz := clock_timestamp();
begin
    if tg_op <> 'INSERT' then
        delete from @schema@.job j
        where j.id = old.last_job_id and j.worker_id is null and j.fence = 0 and j.run_at > asked_at;
        if tg_op = 'DELETE' then
            return old;
        end if;
        if found then
            new.last_job_id := null;
            new.last_tick := null;
            new.decided_until := asked_at;
        end if;
        new.revision := old.revision + 1;
    end if;

    begin
        perform asked_at at time zone new.zone;
    exception when invalid_parameter_value then
        raise exception 'jobq: time zone % is not known', quote_literal(new.zone)
            using errcode = 'invalid_parameter_value', hint = 'Use a name such as ''Europe/Berlin'' or ''UTC''.';
    end;
    if tg_op = 'INSERT'
        or (new.expression, new.zone) is distinct from (old.expression, old.zone)
        or (old.paused_at is not null and new.paused_at is null)
    then
        new.decided_until := asked_at;
        new.held_tick := null;
    end if;
    new.look_at := asked_at;
    new.next_tick := null;
    new.fault := null;
    return new;
end
$follow_recurring$;

create trigger follow_recurring
before insert or delete or update of
    expression, zone, kind, payload, queue, priority, max_attempts, catch_up, catch_up_within, catch_up_cap, overlap,
    paused_at
on @schema@.recurring
for each row execute function @schema@.follow_recurring();

-- v1_recurring: how each entry stands. See docs/views.md.
create view @schema@.v1_recurring as
select
    r.name, r.expression, r.zone, r.kind, r.queue, r.next_tick, r.last_tick, r.last_job_id, r.missed, r.skipped,
    case
        when r.paused_at is not null then 'paused'
        when r.fault is not null then 'faulty'
        -- Nobody has enqueued it; or nobody has even looked, since it was added or changed.
        when r.next_tick < now() - interval '1 minute' then 'overdue'
        when r.next_tick is null and r.look_at < now() - interval '2 minutes' then 'overdue'
        when job.is_late then 'late'
        when r.missed_tick > coalesce(r.last_tick, '-infinity') then 'missed'
        when r.held_tick is not null then 'held'
        else 'well'
    end as state,
    case
        when r.paused_at is not null or r.fault is not null then null
        when r.next_tick < now() - interval '1 minute' then r.next_tick
        when job.is_late then job.run_at
        when r.missed_tick > coalesce(r.last_tick, '-infinity') then r.missed_tick
    end as should_have_run_at,
    r.fault, r.paused_at, r.paused_by, r.paused_why,
    -- Workers say it every five minutes.
    coalesce(r.declared_at < now() - interval '15 minutes', false)
        and exists (select from @schema@.worker w where w.lease_until >= now()) as is_forsaken
from @schema@.recurring r
left join lateral (
    select j.run_at, j.worker_id is null and j.fence = 0 and j.run_at < now() - interval '5 minutes' as is_late
    from @schema@.job j
    where j.id = r.last_job_id
    -- Kept a probe by id: what else is asked of the job would tempt the planner to another index.
    offset 0
) as job on true;
