-- list_slots: no change of state
--
-- Replication slots: what each keeps of the log, in bytes, and how many transactions ago it stopped vacuum, if it does.
select
    s.slot_name::text as name,
    s.active,
    greatest(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0)::bigint as kept_bytes,
    age(s.xmin) as held_transactions
from pg_catalog.pg_replication_slots s
where not pg_is_in_recovery()
order by s.slot_name
