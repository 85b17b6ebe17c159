-- close_incidents: no change of state
--
-- The hook has been told. Incidents that another worker has taken since do not match. Returns how many did.
--
-- $1 hook       text
-- $2 what       text
-- $3 subjects   text[]
-- $4 tries      int[]  by position
-- $5 worker_id  uuid
with closed as (
    update @schema@.incident i
    set told_at = clock_timestamp(), telling_until = null, telling_by = null, tries = 0
    from unnest($3::text[], $4::int[]) as t (subject, tries)
    where i.hook = $1 and i.what = $2 and i.subject = t.subject and i.tries = t.tries and i.telling_by = $5
    returning i.subject
)
select count(*) from closed
