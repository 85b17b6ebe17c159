-- postpone_incidents: no change of state
--
-- The hook has failed: any worker may tell after a pause. Incidents that another worker has taken since do not match.
-- Returns how many did.
--
-- $1 hook       text
-- $2 what       text
-- $3 subjects   text[]
-- $4 tries      int[]  by position
-- $5 worker_id  uuid
-- $6 pause_s    float8
with postponed as (
    update @schema@.incident i
    set telling_until = clock_timestamp() + $6::float8 * interval '1 second', telling_by = null
    from unnest($3::text[], $4::int[]) as t (subject, tries)
    where i.hook = $1 and i.what = $2 and i.subject = t.subject and i.tries = t.tries and i.telling_by = $5
    returning i.subject
)
select count(*) from postponed
