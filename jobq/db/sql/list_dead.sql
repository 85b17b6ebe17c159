-- list_dead: no change of state
--
-- The newest dead letters first; `reports.py` joins the filter.
--
-- $1 limit  int
select
    d.id, d.kind, d.queue, d.reason, d.error_type, d.error_message, d.fingerprint, d.attempt, d.crashes, d.redrives,
    d.first_failed_at, d.died_at
from @schema@.dead_letter d
where true /* filter */
order by d.died_at desc, d.id desc
limit $1::int
