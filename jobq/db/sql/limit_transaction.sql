-- limit_transaction: no change of state
--
-- Let the server end this transaction, and its session, if its client falls silent: one that is frozen, or whose machine is
-- gone, would keep its locks until TCP gives up. Silence is bounded by the limit and, from PostgreSQL 17 on, the whole
-- transaction, also while a statement runs. For this transaction only, and never later than the settings in force say.
--
-- $1 limit_ms  int  more than 0, which would be no limit
select set_config(bound.name, $1::int::text, true)
from (values ('idle_in_transaction_session_timeout'), ('transaction_timeout')) as bound (name)
where current_setting(bound.name, true) = '0'
    -- Only this one: the other, if it is set, counts since the transaction began, and the server does not set it anew.
    or bound.name = 'idle_in_transaction_session_timeout'
    and current_setting(bound.name, true)::interval > $1::int * interval '1 millisecond'
