-- listening_channels: no change of state
--
-- What this session listens on: a round trip that also shows a session swapped by a pooler.
select array(select pg_listening_channels())
