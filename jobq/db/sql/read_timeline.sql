-- read_timeline: no change of state
--
-- Which history this server writes: that of its system, and in it the timeline, in hexadecimal; each promotion begins
-- one of a higher number. No row from a standby, which writes none. Everybody may ask it of PostgreSQL.
select c.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8)
from pg_control_system() c
where not pg_is_in_recovery() -- before the names of files are asked for, which a standby refuses to tell
