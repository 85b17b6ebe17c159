-- explain_job: no change of state
--
-- Why a job is not running, as the function decides and words it.
--
-- $1 id  bigint
select e.reason, e.sentence, e.numbers
from @schema@.explain($1) e
