-- read_version: no change of state
select coalesce(max(m.version), 0) from @schema@.migration m
