-- count_dead: no change of state
--
-- How many dead letters match, and the highest id among them; `reports.py` joins the filter.
select count(*), coalesce(max(d.id), 0) from @schema@.dead_letter d where true /* filter */
