-- draw_ids: no change of state
--
-- The ids of a bulk enqueue, drawn before it: `returning` promises no order, and ids in input order are promised.
--
-- $1 count  int
select array(select nextval($name$@schema@.job_id_seq$name$) from generate_series(1, $1::int))
