-- note_dead: no change of state
--
-- Read the letters that have died since the last look for a hook, one page, and note an incident for each of their kinds:
-- a new one if its last one was told and none of the kind had died for the quiet period, else the one that is there.
-- Passes over a hook for which another worker looks, or has looked lately. Returns whether the next page should be read
-- at once.
--
-- A letter may be committed some time after its `died_at`, so each look goes a minute back behind the one before; what
-- was seen counts once, because only what died after an incident's `seen_at` is new to it.
--
-- $1 hook     text
-- $2 kinds    text[]  null for all
-- $3 quiet_s  float8
-- $4 lately_s float8  how long after another look there is nothing to do, in seconds
-- $5 limit    int     how many letters a page has
with watch as materialized (
    select w.read_to
    from @schema@.dead_watch w
    where w.hook = $1 and w.looked_at <= clock_timestamp() - $4::float8 * interval '1 second'
    for update skip locked
), page as materialized (
    select l.id, l.kind, l.died_at
    from watch w
    cross join lateral (
        select d.id, d.kind, d.died_at
        from @schema@.dead_letter d
        where d.died_at > w.read_to
        order by d.died_at, d.id
        limit $5::int
    ) as l
), fresh as (
    select
        p.kind, min(p.died_at) as first_at, max(p.died_at) as last_at, count(*) as letters,
        (array_agg(p.id order by p.died_at desc, p.id desc))[1] as last_id
    from page p
    left join @schema@.incident i on i.hook = $1 and i.what = 'dead' and i.subject = p.kind
    where p.died_at > coalesce(i.seen_at, '-infinity') and coalesce(p.kind = any($2::text[]), true)
    group by p.kind
), noted as (
    insert into @schema@.incident as i (hook, what, subject, since, seen_at, facts)
    select
        $1, 'dead', f.kind, f.first_at, f.last_at,
        -- A subquery, not a join: it asks the primary key once a kind, whatever the planner believes of their number.
        (
            select jsonb_build_object(
                'letters', f.letters, 'job_id', d.id, 'queue', d.queue, 'reason', d.reason,
                'error_type', d.error_type,
                'error_message', left(split_part(btrim(d.error_message, E' \t\r\n'), E'\n', 1), 200)
            )
            from @schema@.dead_letter d
            where d.id = f.last_id
        )
    from fresh f
    -- Nobody else notes for this hook while its row of `dead_watch` is locked; a purge may be in the way, for a moment.
    on conflict (hook, what, subject) do update
    set
        since = case
            when i.told_at is not null and excluded.since > i.seen_at + $3::float8 * interval '1 second' then excluded.since
            else i.since
        end,
        seen_at = greatest(i.seen_at, excluded.seen_at),
        told_at = case
            when excluded.since > i.seen_at + $3::float8 * interval '1 second' then null
            else i.told_at
        end,
        facts = excluded.facts || case
            when i.told_at is not null and excluded.since > i.seen_at + $3::float8 * interval '1 second' then '{}'
            else jsonb_build_object(
                'letters', (i.facts ->> 'letters')::bigint + (excluded.facts ->> 'letters')::bigint
            )
        end
), ended as (
    select count(*) = $5::int as is_full, max(p.died_at) as last_at
    from page p
), moved as (
    update @schema@.dead_watch w
    set
        looked_at = clock_timestamp(),
        read_to = greatest(
            w.read_to,
            least(case when e.is_full then e.last_at end, clock_timestamp() - interval '1 minute')
        )
    from ended e
    where w.hook = $1 and exists (select from watch)
    returning e.is_full and w.read_to = e.last_at as goes_on
)
select coalesce(bool_or(m.goes_on), false)
from moved m
