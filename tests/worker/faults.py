"""Faults of a database, made inside it: statements of the settler that fail, as long or as often as a test says."""

from __future__ import annotations

from tests.worker.observe import Jobs

FOR_EVER = 10**9


class Faults:
    """A trigger that raises. Counted with a sequence, because a failed transaction takes everything else back."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def fail_settling(self, sqlstate: str, *, times: int = FOR_EVER) -> None:
        """Let the first *times* statements of the settler that touch a job fail with *sqlstate*."""
        await self._jobs.script(
            f"""
            create sequence @schema@.faults;
            create function @schema@.fault() returns trigger language plpgsql as $fault$
            begin
                if current_setting('application_name') = 'jobq settling'
                    and nextval($name$@schema@.faults$name$) <= {times}
                then
                    raise exception 'injected' using errcode = '{sqlstate}';
                end if;
                return coalesce(new, old);
            end
            $fault$;
            create trigger fault before update or delete on @schema@.job
                for each row execute function @schema@.fault();
            """
        )

    async def count(self) -> int:
        """Return how many statements have failed."""
        count: int = await self._jobs.run("select last_value from @schema@.faults where is_called")
        return count or 0

    async def mend(self) -> None:
        """Let everything succeed from now on."""
        await self._jobs.script("drop trigger fault on @schema@.job")

    async def refuse(self, table: str, condition: str) -> None:
        """Let PostgreSQL refuse, for good, each new row of *table* that meets *condition*."""
        await self._jobs.script(
            f"""
            create function @schema@.refuse() returns trigger language plpgsql as $refuse$
            begin
                raise exception 'refused' using errcode = 'check_violation';
            end
            $refuse$;
            create trigger refuse before insert or update on @schema@.{table}
                for each row when ({condition}) execute function @schema@.refuse();
            """
        )
