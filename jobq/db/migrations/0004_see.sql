-- 0004: what people and tools ask in plain SQL: why a job is not running, and the figures, as views with a version.
--
-- Frozen: later changes are migrations of their own. A view `v1_...` keeps its columns and what they mean: what would
-- change either is a new view beside it.
--
-- Most of it are functions that switch `jit` off for themselves. To the planner a bounded walk of an index looks as
-- long as the index: it would compile for half a second what runs for ten milliseconds.

-- What shares how many slots in a worker: [{"kinds": ["send_receipt"], "by_queue": {"mail": 20}}], an entry for each of
-- its classes of executor. Null in the rows of workers of an older version, which do not name the column.
alter table @schema@.worker
    add column slots jsonb;

-- spell: seconds in their two largest units: '45 s', '3 min 12 s', '5 h 2 min', '3 d 4 h'.
create function @schema@.spell(seconds float8) returns text
language sql
stable
set search_path = pg_catalog, pg_temp
as $spell$
    select case
        when whole.s < 60 then format('%s s', whole.s)
        when whole.s < 3600 then format('%s min', whole.s / 60) || case
            when whole.s % 60 > 0 then format(' %s s', whole.s % 60)
            else ''
        end
        when whole.s < 86400 then format('%s h', whole.s / 3600) || case
            when whole.s % 3600 >= 60 then format(' %s min', whole.s % 3600 / 60)
            else ''
        end
        else format('%s d', whole.s / 86400) || case
            when whole.s % 86400 >= 3600 then format(' %s h', whole.s % 86400 / 3600)
            else ''
        end
    end
    from (select greatest(floor(seconds), 0)::bigint as s) as whole
$spell$;

-- moment: a time in UTC, with its distance from `now`: '2026-12-01 07:00:00+00:00 (in 3 h 12 min)'.
create function @schema@.moment(at timestamptz, now timestamptz) returns text
language sql
stable
set search_path = pg_catalog, pg_temp
as $moment$
    select to_char(moment.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"') || case
        when moment.at > moment.now then
            format(' (in %s)', @schema@.spell(extract(epoch from moment.at - moment.now)::float8))
        else format(' (%s ago)', @schema@.spell(extract(epoch from moment.now - moment.at)::float8))
    end
$moment$;

-- counted: how many of what, '1 job', '3 jobs', with 'at least' if the count ended at its limit.
create function @schema@.counted(count bigint, one text, many text, at_most bigint default null) returns text
language sql
stable
set search_path = pg_catalog, pg_temp
as $counted$
    select case when count >= at_most then 'at least ' else '' end
        || ltrim(to_char(count, '999,999,999,999,999')) || ' ' || case when count = 1 then one else many end
$counted$;

-- told: an error in one line, its type and the first line of its message.
create function @schema@.told(type text, message text) returns text
language sql
stable
set search_path = pg_catalog, pg_temp
as $told$
    select left(concat_ws(': ', type, nullif(split_part(btrim(message, E' \t\r\n'), E'\n', 1), '')), 200)
$told$;

-- explain: public and stable. Why a job does not run, or that it does or did, in one sentence with the numbers:
--
--     select reason, sentence from jobq.explain(4711);
--
-- One row always. The reasons, in the order in which they are looked for; the first that holds is the answer:
--
--     unknown       no such job
--     done, dead    it has ended
--     running       an attempt owns it
--     silent        its worker, or its own lease, has lapsed: it is about to be taken back
--     scheduled     its run_at has not come, and no attempt was made yet
--     retry         it waits after an attempt that failed
--     crash         it waits after an attempt that ended with its worker
--     released      it waits after an attempt that was handed back: by a Snooze, or by its worker
--     no_worker     no live worker serves its queue
--     no_handler    none of those that do has a handler for its kind
--     slots         each of those that do holds at least as many jobs as it has slots for it
--     position      others are before it in its queue
--     next          none is
--
-- `numbers` are those of the sentence, for programs. Costs the same for any number of jobs: what is before it is
-- counted up to 10,000. All is read in the snapshot of the calling statement, so a job that moves is found once.
create function @schema@.explain(id bigint, out reason text, out sentence text, out numbers jsonb)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $explain$
#variable_conflict use_column
declare
    count_limit constant int := 10000;
    asked_at constant timestamptz := clock_timestamp();
    instance text := (parse_ident($name$@schema@$name$))[1];
    title text;
    ready text;
    suspicion text;
    job record;
    ended record;
    holder record;
    service record;
    busy record;
    ahead bigint;
begin
    select
        j.kind, j.queue, j.priority, j.run_at, j.worker_id, j.claimed_at, j.lease_until, j.attempt, j.max_attempts,
        j.crashes, j.fence, j.alone_fence, j.errors -> -1 as error, j.headers ->> 'recurring' as recurring,
        (j.errors -> -1 ->> 'at')::timestamptz as recorded_at
    into job
    from @schema@.job j
    where j.id = explain.id;

    if not found then
        select d.kind, d.queue, d.reason, d.attempt, d.died_at, d.error_type, d.error_message
        into ended
        from @schema@.dead_letter d
        where d.id = explain.id;
        if found then
            reason := 'dead';
            sentence := format(
                '%s %s is a dead letter since %s: %s after %s, with %s; once the cause is mended, `jobq dead redrive'
                ' %s%s` runs it again.',
                ended.kind, explain.id, @schema@.moment(ended.died_at, asked_at), ended.reason,
                @schema@.counted(ended.attempt, 'attempt', 'attempts'),
                @schema@.told(ended.error_type, ended.error_message), explain.id,
                case
                    when instance = 'jobq' then ''
                    when instance ~ '^[A-Za-z0-9_.-]+$' then ' --schema ' || instance
                    else ' --schema ''' || replace(instance, '''', '''\''''') || ''''
                end
            );
            numbers := jsonb_build_object(
                'kind', ended.kind, 'queue', ended.queue, 'attempt', ended.attempt, 'died_at', ended.died_at
            );
            return;
        end if;

        select d.kind, d.queue, d.attempt, d.finished_at, d.run_ms
        into ended
        from @schema@.done d
        where d.id = explain.id
        limit 1;
        if found then
            reason := 'done';
            sentence := format(
                '%s %s is done since %s: attempt %s took %s ms.', ended.kind, explain.id,
                @schema@.moment(ended.finished_at, asked_at), ended.attempt,
                ltrim(to_char(ended.run_ms, '9,999,999,999'))
            );
            numbers := jsonb_build_object(
                'kind', ended.kind, 'queue', ended.queue, 'attempt', ended.attempt, 'finished_at', ended.finished_at,
                'run_ms', ended.run_ms
            );
            return;
        end if;

        reason := 'unknown';
        sentence := format(
            'there is no job %s: it is not committed yet, it was deleted, or it was done before the history begins.',
            explain.id
        );
        numbers := '{}';
        return;
    end if;

    title := format('%s %s', job.kind, explain.id);
    -- With one crash less than its kind's max_crashes a job runs alone. Only the application knows that number.
    suspicion := case
        when job.crashes > 0 then format(
            '; %s while it ran, so if the max_crashes of its kind is %s or less it ',
            @schema@.counted(job.crashes, 'worker has died', 'workers have died'), job.crashes + 1
        )
    end;
    numbers := jsonb_build_object(
        'kind', job.kind, 'queue', job.queue, 'attempt', job.attempt, 'crashes', job.crashes, 'run_at', job.run_at
    );

    if job.worker_id is not null then
        select w.host || ':' || w.pid as name, w.lease_until, (
            select count(*)
            from @schema@.job j
            where j.worker_id = job.worker_id and j.id <> explain.id
        ) as others
        into holder
        -- One row also for a worker that has none any more.
        from (values (job.worker_id)) as claimed (worker_id)
        left join @schema@.worker w on w.worker_id = claimed.worker_id;

        numbers := numbers || jsonb_build_object(
            'worker_id', job.worker_id, 'worker', holder.name, 'claimed_at', job.claimed_at,
            'lease_until', job.lease_until
        );
        if least(holder.lease_until, job.lease_until) < asked_at then
            select count(*) as workers into service from @schema@.worker w where w.lease_until >= asked_at;
            reason := 'silent';
            sentence := format(
                '%s is held by worker %s for attempt %s, but the lease lapsed at %s: %s.', title,
                coalesce(holder.name, job.worker_id::text), job.attempt,
                @schema@.moment(least(holder.lease_until, job.lease_until), asked_at),
                case
                    when service.workers = 0 then 'no worker is alive to take it back'
                    else format(
                        'one that lives takes it back (%s alive)', @schema@.counted(service.workers, 'is', 'are')
                    )
                end
            );
        else
            reason := 'running';
            sentence := format(
                '%s has been %s for %s in queue %s, attempt %s, in worker %s; its lease lasts until %s%s.', title,
                case
                    when job.alone_fence = job.fence then 'running alone'
                    when job.crashes > 0 and holder.others > 0 then 'held'
                    else 'running'
                end,
                @schema@.spell(extract(epoch from asked_at - job.claimed_at)::float8), job.queue, job.attempt,
                coalesce(holder.name, job.worker_id::text), @schema@.moment(job.lease_until, asked_at),
                case
                    when job.alone_fence is distinct from job.fence and holder.others > 0 then suspicion
                        || format(
                            'waits there for the end of %s', @schema@.counted(holder.others, 'other job', 'other jobs')
                        )
                end
            );
            numbers := numbers || jsonb_build_object('others', holder.others);
        end if;
        return;
    end if;

    -- What holds up a whole queue on purpose would be said here, before what holds up this job.

    if job.run_at > asked_at then
        sentence := format('%s waits until %s: ', title, @schema@.moment(job.run_at, asked_at));
        if job.claimed_at is null then
            reason := 'scheduled';
            if job.recurring is null then
                sentence := format('%s is scheduled for %s.', title, @schema@.moment(job.run_at, asked_at));
            else
                sentence := format(
                    '%s waits for its tick, %s: recurring %s.', title, @schema@.moment(job.run_at, asked_at), job.recurring
                );
                numbers := numbers || jsonb_build_object('recurring', job.recurring);
            end if;
        elsif job.error is null or job.claimed_at > job.recorded_at then
            -- Claimed after the last record: of this attempt nothing was recorded, and its number was given back.
            reason := 'released';
            sentence := sentence || format(
                'attempt %s, claimed %s ago, was handed back and nothing failed (a Snooze, or a worker that could not'
                ' run it alone).',
                job.attempt + 1, @schema@.spell(extract(epoch from asked_at - job.claimed_at)::float8)
            );
        elsif job.error ->> 'type' in ('Drained', 'LeaseLapsed') then
            reason := 'released';
            sentence := sentence || format(
                'attempt %s was handed back %s ago and nothing failed (%s).', job.error ->> 'attempt',
                @schema@.spell(extract(epoch from asked_at - job.recorded_at)::float8),
                @schema@.told(job.error ->> 'type', job.error ->> 'message')
            );
        elsif job.error ->> 'type' = 'WorkerLost' then
            reason := 'crash';
            sentence := sentence || format(
                'the worker of attempt %s ended or fell silent, which was found %s ago (%s so far).',
                job.error ->> 'attempt', @schema@.spell(extract(epoch from asked_at - job.recorded_at)::float8),
                @schema@.counted(job.crashes, 'crash', 'crashes')
            );
        else
            reason := 'retry';
            sentence := sentence || format(
                'attempt %s failed %s ago with %s.',
                coalesce(job.error ->> 'attempt', '?') || coalesce(' of ' || job.max_attempts, ''),
                @schema@.spell(extract(epoch from asked_at - job.recorded_at)::float8),
                @schema@.told(job.error ->> 'type', job.error ->> 'message')
            );
        end if;
        numbers := numbers || jsonb_build_object('wait_s', extract(epoch from job.run_at - asked_at));
        return;
    end if;

    select
        count(*) as alive,
        count(*) filter (where job.queue = any(w.queues)) as serving,
        count(*) filter (where job.queue = any(w.queues) and job.kind = any(w.kinds)) as able
    into service
    from @schema@.worker w
    where w.lease_until >= asked_at;
    ready := format('has been ready for %s', @schema@.spell(extract(epoch from asked_at - job.run_at)::float8));
    numbers := numbers || jsonb_build_object(
        'ready_s', extract(epoch from asked_at - job.run_at), 'workers', service.alive,
        'workers_of_queue', service.serving, 'workers_of_kind', service.able
    );

    if service.serving = 0 then
        reason := 'no_worker';
        sentence := format(
            '%s %s, but no live worker serves queue %s (%s alive).', title, ready, job.queue,
            @schema@.counted(service.alive, 'worker is', 'workers are')
        );
        return;
    end if;
    if service.able = 0 then
        reason := 'no_handler';
        sentence := format(
            '%s %s, but no live worker of queue %s has a handler for its kind (%s the queue).', title, ready, job.queue,
            @schema@.counted(service.serving, 'serves', 'serve')
        );
        return;
    end if;

    -- Of all that its workers hold of its queue some share its slots: the kinds of the same class of executor.
    select
        sum(held.jobs)::bigint as jobs, min(held.since) as since, sum(room.slots) as slots,
        sum(held.sharing)::bigint as sharing, min(held.sharing_since) as sharing_since,
        -- Each by itself: what one has claimed ahead takes no slot of another. What is unknown is not taken.
        bool_and(coalesce(held.sharing >= room.slots, false)) as all_taken
    into busy
    from @schema@.worker w
    left join lateral (
        select s.kinds, (s.by_queue ->> job.queue)::int as slots
        from jsonb_to_recordset(w.slots) as s (kinds jsonb, by_queue jsonb)
        where s.kinds ? job.kind
    ) as room on true
    -- Grouped inside, so that this stays a probe for each worker: a join may turn into a scan of the table.
    cross join lateral (
        select
            count(*) as jobs, min(j.claimed_at) as since,
            count(*) filter (where room.kinds ? j.kind) as sharing,
            min(j.claimed_at) filter (where room.kinds ? j.kind) as sharing_since
        from @schema@.job j
        where j.worker_id = w.worker_id and j.queue = job.queue
    ) as held
    where w.lease_until >= asked_at and job.queue = any(w.queues) and job.kind = any(w.kinds);

    select count(*)
    into ahead
    from (
        select
        from generate_series(0, job.priority::int) as lane (priority)
        cross join lateral (
            select
            from @schema@.job j
            where j.worker_id is null
                and j.queue = job.queue
                and j.priority = lane.priority
                -- One comparison of rows for all lanes, so that each ends where it stands in the index.
                and (j.run_at, j.id) < (
                    case when lane.priority < job.priority then asked_at else job.run_at end, explain.id
                )
            order by j.run_at
            limit count_limit
        ) as job_of_lane
        limit count_limit
    ) as job_ahead;
    numbers := numbers || jsonb_build_object(
        'ahead', ahead, 'ahead_is_at_least', ahead >= count_limit, 'running', busy.jobs
    );

    if busy.all_taken then
        reason := 'slots';
        -- Held, not running: some may be claimed ahead, or have ended and not be written yet.
        sentence := format(
            '%s %s in queue %s: its %s %s for the %s that it could take, the oldest for %s; %s before it%s.', title, ready,
            job.queue, @schema@.counted(service.able, 'live worker holds', 'live workers hold'),
            @schema@.counted(busy.sharing, 'job', 'jobs'), @schema@.counted(busy.slots, 'slot', 'slots'),
            @schema@.spell(extract(epoch from asked_at - busy.sharing_since)::float8),
            @schema@.counted(ahead, 'ready job is', 'ready jobs are', count_limit), suspicion || 'runs alone'
        );
        numbers := numbers || jsonb_build_object('slots', busy.slots, 'held', busy.sharing);
        return;
    end if;

    reason := case when ahead > 0 then 'position' else 'next' end;
    sentence := format(
        '%s %s in queue %s: %s before it, and %s in its %s%s%s.', title, ready, job.queue,
        @schema@.counted(ahead, 'ready job is', 'ready jobs are', count_limit),
        @schema@.counted(busy.jobs, 'runs', 'run'), @schema@.counted(service.able, 'live worker', 'live workers'),
        case
            when busy.jobs > 0
                then format(', the oldest for %s', @schema@.spell(extract(epoch from asked_at - busy.since)::float8))
        end,
        suspicion || 'runs alone'
    );
end
$explain$;

-- waiting_queues: the queues in which jobs wait. A loose scan: one probe of the index a queue, however many jobs wait.
create function @schema@.waiting_queues() returns setof text
language sql
stable
-- Left unsaid, the planner expects a thousand.
rows 10
set search_path = pg_catalog, pg_temp
set jit = off
as $waiting_queues$
    with recursive waiting (queue) as (
        (
            select j.queue
            from @schema@.job j
            where j.worker_id is null
            order by j.queue
            limit 1
        )
        union all
        select (
            select j.queue
            from @schema@.job j
            where j.worker_id is null
                and j.queue > w.queue
            order by j.queue
            limit 1
        )
        from waiting w
        where w.queue is not null
    )
    select w.queue
    from waiting w
    where w.queue is not null
$waiting_queues$;

-- v1_queue_depth: the jobs of each queue that anything is known of. See the view.
create function @schema@.v1_queue_depth()
returns table (queue text, ready bigint, scheduled bigint, running bigint, dead bigint, workers bigint)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $v1_queue_depth$
    with recursive bereaved (queue) as (
        -- Loose scans, here and below, as in waiting_queues.
        (
            select d.queue
            from @schema@.dead_letter d
            order by d.queue
            limit 1
        )
        union all
        select (
            select d.queue
            from @schema@.dead_letter d
            where d.queue > b.queue
            order by d.queue
            limit 1
        )
        from bereaved b
        where b.queue is not null
    ), holder (worker_id) as (
        (
            select j.worker_id
            from @schema@.job j
            where j.worker_id is not null
            order by j.worker_id
            limit 1
        )
        union all
        select (
            select j.worker_id
            from @schema@.job j
            where j.worker_id > h.worker_id
            order by j.worker_id
            limit 1
        )
        from holder h
        where h.worker_id is not null
    ), running as (
        select held.queue, sum(held.count)::bigint as count
        from holder h
        -- Grouped inside, so that this stays a probe for each worker: a join may turn into a scan of the table.
        cross join lateral (
            select j.queue, count(*)
            from @schema@.job j
            where j.worker_id = h.worker_id
            group by j.queue
        ) as held
        group by held.queue
    ), served as (
        select of_worker.queue, count(distinct w.worker_id) as count
        from @schema@.worker w
        cross join lateral unnest(w.queues) as of_worker (queue)
        where w.lease_until >= now()
        group by of_worker.queue
    ), known as (
        select w.queue from @schema@.waiting_queues() as w (queue)
        union
        select b.queue from bereaved b
        union
        select r.queue from running r
        union
        select s.queue from served s
    )
    select
        k.queue, ready.count, scheduled.count, coalesce(r.count, 0), letters.count, coalesce(s.count, 0)
    from known k
    left join running r on r.queue = k.queue
    left join served s on s.queue = k.queue
    cross join lateral (
        select count(*)
        from (
            select
            from generate_series(0, 9) as lane (priority)
            cross join lateral (
                select
                from @schema@.job j
                where j.worker_id is null
                    and j.queue = k.queue
                    and j.priority = lane.priority
                    and j.run_at <= now()
                -- Only the index gives this order at once: without it, a scan of the table looks cheap to the planner,
                -- which cannot know that the first matching row may stand at its end.
                order by j.run_at
                limit 10001
            ) as job_of_lane
            limit 10001
        ) as job_of_queue
    ) as ready
    cross join lateral (
        select count(*)
        from (
            select
            from generate_series(0, 9) as lane (priority)
            cross join lateral (
                select
                from @schema@.job j
                where j.worker_id is null
                    and j.queue = k.queue
                    and j.priority = lane.priority
                    and j.run_at > now()
                order by j.run_at
                limit 10001
            ) as job_of_lane
            limit 10001
        ) as job_of_queue
    ) as scheduled
    cross join lateral (
        select count(*)
        from (
            select
            from @schema@.dead_letter d
            where d.queue = k.queue
            order by d.kind, d.id
            limit 10001
        ) as letter
    ) as letters
    where k.queue is not null
$v1_queue_depth$;

-- v1_oldest_ready: since when the oldest ready job of each queue could have been running. See the view.
create function @schema@.v1_oldest_ready()
returns table (queue text, run_at timestamptz, age_s float8)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $v1_oldest_ready$
    select w.queue, oldest.run_at, coalesce(extract(epoch from now() - oldest.run_at), 0)::float8
    from @schema@.waiting_queues() as w (queue)
    cross join lateral (
        select min(first.run_at) as run_at
        from generate_series(0, 9) as lane (priority)
        cross join lateral (
            select j.run_at
            from @schema@.job j
            where j.worker_id is null
                and j.queue = w.queue
                and j.priority = lane.priority
                and j.run_at <= now()
            order by j.run_at
            limit 1
        ) as first
    ) as oldest
$v1_oldest_ready$;

-- v1_unserved: kinds that are ready in a queue in which no live worker takes them. See the view.
create function @schema@.v1_unserved()
returns table (queue text, kind text)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $v1_unserved$
    with oldest as materialized (
        select distinct w.queue, first.kind
        from @schema@.waiting_queues() as w (queue)
        cross join generate_series(0, 9) as lane (priority)
        cross join lateral (
            -- What is passed over stays in front.
            select j.kind
            from @schema@.job j
            where j.worker_id is null
                and j.queue = w.queue
                and j.priority = lane.priority
                and j.run_at <= now()
            order by j.run_at, j.id
            limit 1000
        ) as first
    )
    select o.queue, o.kind
    from oldest o
    where not exists (
        select
        from @schema@.worker a
        where a.lease_until >= now()
            and o.queue = any(a.queues)
            and o.kind = any(a.kinds)
    )
$v1_unserved$;

-- v1_rates: what became of the attempts of the last five minutes and of the last hour. See the view.
create function @schema@.v1_rates()
returns table (
    queue text, kind text, window_s int, done bigint, retried bigint, dead bigint, failure_rate float8, p50_ms float8,
    p95_ms float8
)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $v1_rates$
    with recent as materialized (
        select s.at, s.queue, s.kind, s.done, s.retried, s.dead, s.buckets, s.counts
        from @schema@.kind_stat s
        where s.at > now() - interval '1 hour'
            -- An end that nothing lies beyond: a range with two takes the index, with one statistics of yesterday may
            -- not.
            and s.at < now() + interval '1 minute'
    ), of_window as materialized (
        select w.window_s, r.queue, r.kind, r.done, r.retried, r.dead, r.buckets, r.counts
        from (values (300), (3600)) as w (window_s)
        join recent r on r.at > now() - w.window_s * interval '1 second'
    ), total as (
        select w.window_s, w.queue, w.kind, sum(w.done) as done, sum(w.retried) as retried, sum(w.dead) as dead
        from of_window w
        group by w.window_s, w.queue, w.kind
    ), bucket as (
        select w.window_s, w.queue, w.kind, b.bucket, sum(b.count) as count
        from of_window w
        cross join lateral unnest(w.buckets, w.counts) as b (bucket, count)
        where b.count > 0
        group by w.window_s, w.queue, w.kind, b.bucket
    ), reached as (
        select
            b.window_s, b.queue, b.kind, b.bucket,
            sum(b.count) over (partition by b.window_s, b.queue, b.kind order by b.bucket) as upto,
            sum(b.count) over (partition by b.window_s, b.queue, b.kind) as ended
        from bucket b
    ), percentile as (
        select
            r.window_s, r.queue, r.kind,
            -- The upper bounds of the buckets: the first ends at 1 ms, each other one a fifth above the one before it.
            power(2, (greatest(min(r.bucket) filter (where r.upto >= 0.50 * r.ended), 1) - 1) / 4.0::float8) as p50_ms,
            power(2, (greatest(min(r.bucket) filter (where r.upto >= 0.95 * r.ended), 1) - 1) / 4.0::float8) as p95_ms
        from reached r
        group by r.window_s, r.queue, r.kind
    )
    select
        t.queue, t.kind, t.window_s, t.done, t.retried, t.dead,
        (t.retried + t.dead)::float8 / nullif(t.done + t.retried + t.dead, 0),
        p.p50_ms, p.p95_ms
    from total t
    left join percentile p on p.window_s = t.window_s and p.queue = t.queue and p.kind = t.kind
$v1_rates$;

-- v1_dead_by_kind: how many dead letters each queue and kind has. See the view.
create function @schema@.v1_dead_by_kind()
returns table (queue text, kind text, letters bigint)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $v1_dead_by_kind$
    with recursive pair (queue, kind) as (
        (
            select d.queue, d.kind
            from @schema@.dead_letter d
            order by d.queue, d.kind
            limit 1
        )
        union all
        select next.queue, next.kind
        from pair p
        cross join lateral (
            select d.queue, d.kind
            from @schema@.dead_letter d
            where (d.queue, d.kind) > (p.queue, p.kind)
            order by d.queue, d.kind
            limit 1
        ) as next
    )
    select p.queue, p.kind, letters.count
    from pair p
    cross join lateral (
        select count(*)
        from (
            select
            from @schema@.dead_letter d
            where d.queue = p.queue
                and d.kind = p.kind
            order by d.id
            limit 10001
        ) as letter
    ) as letters
$v1_dead_by_kind$;

-- What stands in each column of a view is told in docs/views.md; a test compares.
create view @schema@.v1_queue_depth as
select d.queue, d.ready, d.scheduled, d.running, d.dead, d.workers
from @schema@.v1_queue_depth() d;

create view @schema@.v1_oldest_ready as
select o.queue, o.run_at, o.age_s
from @schema@.v1_oldest_ready() o;

create view @schema@.v1_unserved as
select u.queue, u.kind
from @schema@.v1_unserved() u;

create view @schema@.v1_rates as
select r.queue, r.kind, r.window_s, r.done, r.retried, r.dead, r.failure_rate, r.p50_ms, r.p95_ms
from @schema@.v1_rates() r;

create view @schema@.v1_dead_by_kind as
select d.queue, d.kind, d.letters
from @schema@.v1_dead_by_kind() d;

create view @schema@.v1_dead_letters as
select
    d.id, d.queue, d.kind, d.reason, d.error_type, d.error_message, d.fingerprint, d.attempt, d.crashes, d.redrives,
    d.first_failed_at, d.died_at
from @schema@.dead_letter d;

create view @schema@.v1_oldest_dead as
select d.died_at, extract(epoch from now() - d.died_at)::float8 as age_s
from @schema@.dead_letter d
order by d.died_at, d.id
limit 1;

create view @schema@.v1_workers as
select
    w.worker_id, w.host, w.pid, w.version, w.queues, w.kinds, (
        select sum(of_queue.slots::int)::int
        from jsonb_to_recordset(w.slots) as s (by_queue jsonb)
        cross join lateral jsonb_each_text(s.by_queue) as of_queue (queue, slots)
    ) as slots,
    w.started_at, w.lease_until, w.lease_until >= now() as is_alive
from @schema@.worker w;

create view @schema@.v1_table_sizes as
select
    c.relname::text as name,
    sum(greatest(pg_stat_get_live_tuples(coalesce(i.inhrelid, c.oid)), 0))::bigint as rows_estimate,
    sum(pg_total_relation_size(coalesce(i.inhrelid, c.oid)))::bigint as bytes
from pg_catalog.pg_class c
left join pg_catalog.pg_inherits i on i.inhparent = c.oid
where c.oid in (
    $name$@schema@.job$name$::regclass, $name$@schema@.done$name$::regclass,
    $name$@schema@.dead_letter$name$::regclass, $name$@schema@.idempotency_key$name$::regclass,
    $name$@schema@.kind_stat$name$::regclass
)
group by c.relname;
