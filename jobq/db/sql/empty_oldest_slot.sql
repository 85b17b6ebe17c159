-- empty_oldest_slot: no change of state
--
-- Retention of history: see the function. Returns the bytes given back, or null if the slot is too young.
select @schema@.empty_oldest_slot()
