-- try_listener: no change of state
--
-- Say something to whoever listens on this schema, at commit: one of them waits to hear it, the others know no queue of
-- such a name.
--
-- $1 said  text
select pg_notify((parse_ident($name$@schema@$name$))[1], $1::text)
