-- set_lock_timeout: no change of state
--
-- For this transaction only.
--
-- $1 lock_timeout  text  with its unit, '3s'
select set_config('lock_timeout', $1, true)
