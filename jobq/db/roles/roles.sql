-- The five roles of one instance. Run by a superuser, or by a role that may create roles and gives objects away.
-- Running it again changes nothing, or takes back what was granted beside it. Refused, and nothing changed, where the
-- schema is of another version.
-- Schema @schema@ at version @version@; roles @owner@, @producer@, @worker@, @reader@, @operator@.
begin;
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '3s';

do $roles$
declare
    wanted text;
    object record;
    found int;
begin
    foreach wanted in array array[
        (parse_ident($name$@owner@$name$))[1], (parse_ident($name$@producer@$name$))[1],
        (parse_ident($name$@worker@$name$))[1], (parse_ident($name$@reader@$name$))[1],
        (parse_ident($name$@operator@$name$))[1]
    ] loop
        if not exists (select from pg_roles r where r.rolname = wanted) then
            execute format('create role %I nologin', wanted);
        end if;
    end loop;
    -- Only a member may give an object to a role, or state its default privileges.
    if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
        grant @owner@ to current_user;
    end if;

    if not exists (select from pg_namespace n where n.nspname = (parse_ident($name$@schema@$name$))[1]) then
        create schema @schema@ authorization @owner@;
    end if;
    alter schema @schema@ owner to @owner@;

    -- What somebody else has migrated. Partitions are named, sequences of identity columns follow their table.
    for object in
        select c.relname
        from pg_class c
        where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = (parse_ident($name$@schema@$name$))[1])
            and c.relkind in ('r', 'p', 'v')
            and c.relowner <> (select r.oid from pg_roles r where r.rolname = (parse_ident($name$@owner@$name$))[1])
    loop
        execute format('alter table %s.%I owner to %s', $name$@schema@$name$, object.relname, $name$@owner@$name$);
    end loop;
    for object in
        -- With its schema in front, which is not in the search path.
        select p.oid::regprocedure as signature
        from pg_proc p
        where p.pronamespace = (select n.oid from pg_namespace n where n.nspname = (parse_ident($name$@schema@$name$))[1])
            and p.proowner <> (select r.oid from pg_roles r where r.rolname = (parse_ident($name$@owner@$name$))[1])
    loop
        execute format('alter function %s owner to %s', object.signature, $name$@owner@$name$);
    end loop;

    -- Another version needs other rights: whoever works here is left with those that he has.
    if to_regclass($name$@schema@.migration$name$) is not null then
        select max(m.version) into found from @schema@.migration m;
        if found is distinct from @version@ then
            raise exception 'jobq: schema % is at version %, this script is for version %',
                $name$@schema@$name$, found, @version@
                using hint = 'Nothing was changed. Migrate first, or run the script of the release that has migrated.';
        end if;
    end if;

    -- Whatever was granted before goes; what follows is all that there is.
    revoke all on all tables in schema @schema@ from public, @producer@, @worker@, @reader@, @operator@;
    revoke all on all sequences in schema @schema@ from public, @producer@, @worker@, @reader@, @operator@;
    revoke all on all functions in schema @schema@ from public, @producer@, @worker@, @reader@, @operator@;
    revoke all on schema @schema@ from public, @producer@, @worker@, @reader@, @operator@;

    -- For what later migrations create: functions are nobody's, tables may be read by the readers, until this script has
    -- run again and granted what each role needs.
    alter default privileges for role @owner@ revoke execute on functions from public;
    alter default privileges for role @owner@ in schema @schema@ grant select on tables to @reader@;

    grant usage on schema @schema@ to @producer@, @worker@, @reader@, @operator@;
    grant @producer@ to @worker@;
    grant @reader@ to @operator@;
end
$roles$;

do $grants$
begin
    if to_regclass($name$@schema@.migration$name$) is null then
        raise warning 'jobq: schema % is at version 0, this script is for version %', $name$@schema@$name$, @version@
            using hint = 'Migrate as a member of the owner, then run this script of the same release again.';
        return;
    end if;

    -- Which version the schema has: asked by every command, and by a worker at its start.
    grant select on @schema@.migration to @producer@, @worker@, @reader@;

    -- producer: adds jobs, and sees of a job no more than its id and its times; changes and deletes none.
    grant usage on sequence @schema@.job_id_seq to @producer@;
    grant insert (
        id, kind, payload, queue, run_at, enqueued_at, priority, max_attempts, headers, idempotency_key
    ) on @schema@.job to @producer@;
    grant select (id, run_at, enqueued_at) on @schema@.job to @producer@;
    grant select, insert, update (job_id, until) on @schema@.idempotency_key to @producer@;
    grant select (queue, until) on @schema@.sleeper to @producer@;
    grant execute on function
        @schema@.enqueue(text, jsonb, text, timestamptz, int, text, interval, int, jsonb, boolean),
        @schema@.take_key(text, text, bigint, interval), @schema@.notify_sleepers(text[])
        to @producer@;

    -- worker: a producer, because handlers enqueue; runs jobs, and changes nothing of what they ask for. Adds to the
    -- history and to the dead letters; reads of the one the ring's partitions, which it empties, and of the other no more
    -- than it takes to count them, for its metrics, which are those of the views, and to tell alerts of them.
    grant select, delete, update (
        run_at, claimed_at, lease_until, first_failed_at, worker_id, attempt, crashes, fence, errors, alone_fence,
        lone_crashes
    ) on @schema@.job to @worker@;
    grant insert on @schema@.done, @schema@.dead_letter to @worker@;
    grant select (id, queue, kind, died_at, reason, error_type, error_message) on @schema@.dead_letter to @worker@;
    grant select on
        @schema@.v1_queue_depth, @schema@.v1_oldest_ready, @schema@.v1_unserved, @schema@.v1_oldest_dead,
        @schema@.v1_workers
        to @worker@;
    grant execute on function
        @schema@.v1_queue_depth(), @schema@.v1_oldest_ready(), @schema@.v1_unserved(), @schema@.waiting_queues()
        to @worker@;
    grant select, truncate on
        @schema@.done_0, @schema@.done_1, @schema@.done_2, @schema@.done_3, @schema@.done_4, @schema@.done_5,
        @schema@.done_6, @schema@.done_7
        to @worker@;
    grant select on @schema@.history to @worker@;
    grant delete on @schema@.idempotency_key to @worker@;
    grant select, insert, delete, update (until) on @schema@.sleeper to @worker@;
    grant select, insert, delete, update (lease_until) on @schema@.worker to @worker@;
    -- The update is for the row locks that purging takes.
    grant select, insert, delete, update (counts) on @schema@.kind_stat to @worker@;
    grant select, insert, delete, update (since, seen_at, told_at, telling_until, telling_by, tries, facts)
        on @schema@.incident to @worker@;
    grant select, insert, delete, update (looked_at, read_to) on @schema@.dead_watch to @worker@;
    grant execute on function @schema@.with_error(jsonb, jsonb), @schema@.empty_oldest_slot() to @worker@;
    -- It declares the recurring entries of its code, and moves all of them on.
    grant select, insert, update, delete on @schema@.recurring to @worker@;
    grant select on @schema@.v1_recurring to @worker@;

    -- reader: sees everything, payloads too, and writes nothing.
    grant select on
        @schema@.job, @schema@.done, @schema@.dead_letter, @schema@.worker, @schema@.kind_stat, @schema@.history,
        @schema@.incident, @schema@.dead_watch, @schema@.v1_queue_depth, @schema@.v1_oldest_ready, @schema@.v1_unserved, @schema@.v1_rates,
        @schema@.v1_dead_by_kind, @schema@.v1_dead_letters, @schema@.v1_oldest_dead, @schema@.v1_workers,
        @schema@.v1_table_sizes, @schema@.recurring, @schema@.v1_recurring
        to @reader@;
    grant execute on function
        @schema@.explain(bigint), @schema@.spell(float8), @schema@.moment(timestamptz, timestamptz),
        @schema@.counted(bigint, text, text, bigint), @schema@.told(text, text), @schema@.v1_queue_depth(),
        @schema@.v1_oldest_ready(), @schema@.v1_unserved(), @schema@.v1_rates(), @schema@.v1_dead_by_kind(),
        @schema@.waiting_queues()
        to @reader@;

    -- operator: a reader who redrives and deletes dead letters, and pauses, resumes, runs and removes recurring entries. A
    -- redrive adds the job again, with its past; a pause withdraws the job that waits for its tick.
    grant delete, update (redrives) on @schema@.dead_letter to @operator@; -- the update is for the row locks
    grant insert (
        id, run_at, enqueued_at, first_failed_at, fence, redrives, max_attempts, priority, queue, kind, payload, errors,
        headers, idempotency_key
    ) on @schema@.job to @operator@;
    grant select, insert, update (job_id, until) on @schema@.idempotency_key to @operator@;
    grant select (queue, until) on @schema@.sleeper to @operator@;
    grant execute on function @schema@.take_key(text, text, bigint, interval), @schema@.notify_sleepers(text[])
        to @operator@;
    grant delete on @schema@.job to @operator@;
    grant delete, update (paused_at, paused_by, paused_why, last_job_id, revision) on @schema@.recurring to @operator@;
end
$grants$;
commit;
