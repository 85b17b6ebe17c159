"""Money transfer: a job that only writes to the database of its queue is exactly-once, with no key and no flag.

`job.transaction()` commits what the handler writes together with the completion of the job. A process that dies before
the commit has moved nothing, and the job runs again; after it, the job is done and cannot. An attempt that has lost its
job to another one meanwhile fails to commit.

    jobq migrate --embedded
    python -m examples.transfer --embedded
    jobq run examples.transfer:queue --embedded --until-empty
    python -m examples.transfer --embedded --show
"""

from __future__ import annotations

import sys

from examples.try_out import try_out
from jobq import Job, Permanent, Queue

SCHEMA = """
create table if not exists account (id bigint primary key, owner text not null, cents int not null check (cents >= 0));
create table if not exists transfer (
    id bigserial primary key,
    source bigint not null references account,
    target bigint not null references account,
    cents int not null check (cents > 0)
);
insert into account values (1, 'Ada', 10000), (2, 'Bob', 0) on conflict do nothing;
"""

queue = Queue()


@queue.task(
    kind="move_money",
    queue="money",
    timeout=30,  # seconds, also for the locks on both accounts
    on_duplicate="impossible: the writes and the completion of the job commit together, or neither does",
)
async def move_money(job: Job, transfer_id: int) -> None:
    """Carry out one transfer. All of it happens on *conn*: what is written elsewhere is not exactly-once."""
    async with job.transaction() as conn:
        transfer = await conn.fetchrow("select source, target, cents from transfer where id = $1", transfer_id)
        if transfer is None:
            raise Permanent(f"transfer {transfer_id} was withdrawn")
        source, target, cents = transfer["source"], transfer["target"], transfer["cents"]
        # In one order, whoever pays whom: two transfers in opposite directions must not wait for each other.
        await conn.execute("select from account where id in ($1, $2) order by id for update", source, target)
        paid = await conn.execute("update account set cents = cents - $1 where id = $2 and cents >= $1", cents, source)
        if paid == "UPDATE 0":
            raise Permanent(f"transfer {transfer_id}: account {source} has less than {cents / 100:.2f}")
        await conn.execute("update account set cents = cents + $1 where id = $2", cents, target)
        # A mail to the owner would be another job, enqueued here with `conn=conn`: it then exists exactly once.


async def request_transfer(source: int, target: int, cents: int) -> int:
    """Store a transfer and the job that carries it out. Returns the transfer's id."""
    pool = await queue.pool()
    async with pool.acquire() as conn, conn.transaction():
        transfer_id: int = await conn.fetchval(
            "insert into transfer (source, target, cents) values ($1, $2, $3) returning id", source, target, cents
        )
        await queue.enqueue(move_money.bind(transfer_id=transfer_id), conn=conn)
    return transfer_id


async def main() -> None:
    """Let Ada pay Bob ten times 2.50, or show what they have."""
    pool = await queue.pool()
    await pool.execute(SCHEMA)
    if "--show" not in sys.argv[1:]:
        for _ in range(10):
            await request_transfer(source=1, target=2, cents=250)
    for row in await pool.fetch("select owner, cents from account order by id"):
        print(f"{row['owner']} has {row['cents'] / 100:.2f}")


if __name__ == "__main__":
    try_out(queue, main)
