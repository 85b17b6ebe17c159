-- switch_jit_off: no change of state
--
-- For the rest of this transaction nothing is compiled: to the planner a bounded walk of an index looks as long as the
-- index, and it would compile for half a second what runs for ten milliseconds.
select set_config('jit', 'off', true)
