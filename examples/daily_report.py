"""Daily report: a recurring job, at nine in Berlin on working days, that says which day it is about.

A tick is enqueued once, by whichever worker comes first, and runs late rather than not at all: after a night without
workers the report of nine o'clock is written until ten. In two terminals:

    jobq migrate --embedded
    python -m examples.daily_report --embedded
    jobq run examples.daily_report:queue --embedded
    jobq cron list --embedded
    jobq cron next daily_report --count 3 --embedded
    jobq cron run daily_report --embedded

The last one does not wait for nine o'clock.
"""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from examples.try_out import try_out
from jobq import Job, Queue

BERLIN = ZoneInfo("Europe/Berlin")
SCHEMA = """
    create table if not exists sale (id bigserial primary key, sold_on date not null, cents int not null);
    create table if not exists report (day date primary key, sales int not null, cents int not null);
"""

queue = Queue()


@queue.recurring("0 9 * * mon-fri", tz="Europe/Berlin", overlap="skip")
@queue.task(kind="daily_report", on_duplicate="harmless: the report of a day is written over by the same one")
async def daily_report(job: Job) -> None:
    """Add up what was sold on the day before the tick; a run by hand has no tick, and is about yesterday."""
    due = job.tick or job.enqueued_at  # not the time of this run: it may be late, or a retry of tomorrow
    day = due.astimezone(BERLIN).date() - timedelta(days=1)
    pool = await queue.pool()
    sales = await pool.fetchval(
        """
        insert into report (day, sales, cents)
        select $1, count(*), coalesce(sum(cents), 0) from sale where sold_on = $1
        on conflict (day) do update set sales = excluded.sales, cents = excluded.cents
        returning sales
        """,
        day,
    )
    print(f"report of {day}: {sales} sales")


async def main() -> None:
    """Sell three things yesterday."""
    pool = await queue.pool()
    await pool.execute(SCHEMA)
    await pool.execute(
        "insert into sale (sold_on, cents) select (now() at time zone 'Europe/Berlin')::date - 1, 1000 * n"
        " from generate_series(1, 3) n"
    )
    print("3 things were sold yesterday")


if __name__ == "__main__":
    try_out(queue, main)
