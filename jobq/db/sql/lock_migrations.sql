-- lock_migrations: no change of state
--
-- One migration at a time in one schema; released with the transaction, so nothing is left behind by a crash. Waits
-- without limit: the holder's own statements have one.
--
-- $1 schema  text
select pg_advisory_xact_lock(hashtextextended('jobq migrate ' || $1, 0))
