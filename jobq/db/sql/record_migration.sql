-- record_migration: no change of state
--
-- $1 version  int
-- $2 name     text
insert into @schema@.migration (version, name) values ($1, $2)
