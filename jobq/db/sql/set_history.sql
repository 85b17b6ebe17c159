-- set_history: no change of state
--
-- $1 slot_s  int  seconds a slot, 0 to write no history
update @schema@.history set slot_s = $1
