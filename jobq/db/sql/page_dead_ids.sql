-- page_dead_ids: no change of state
--
-- One page of matching ids, by id, so that a bulk command goes through the table once and what dies meanwhile again
-- under an id already passed is not met again; `reports.py` joins the filter.
--
-- $1 after  bigint
-- $2 upto   bigint
-- $3 limit  int
select d.id
from @schema@.dead_letter d
where d.id > $1
    and d.id <= $2 /* filter */
order by d.id
limit $3::int
