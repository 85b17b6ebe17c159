"""The public function `enqueue`: any language adds a job in its own transaction, by plain SQL."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from jobq.core.states import State
from tests.db.rows import Rows

BAD = {
    "kind null": "null",
    "kind": "'send receipt'",
    "kind with a line end": "E'send\\n'",
    "long kind": "repeat('k', 101)",
    "queue null": "'k', queue => null",
    "queue": "'k', queue => 'päper'",
    "long queue": "'k', queue => repeat('q', 61)",
    "array": "'k', '[1]'",
    "string": "'k', '\"text\"'",
    "payload null": "'k', null",
    "json null": "'k', 'null'",
    "large": "'k', jsonb_build_object('text', repeat('x', 3000000))",
    "never": "'k', run_at => 'infinity'",
    "long ago": "'k', run_at => '-infinity'",
    "priority": "'k', priority => 10",
    "negative priority": "'k', priority => -1",
    "priority null": "'k', priority => null",
    "empty key": "'k', idempotency_key => ''",
    "long key": "'k', idempotency_key => repeat('k', 513)",
    "no answer": "'k', idempotency_key => 'a', idempotency_for => null",
    "negative answer": "'k', idempotency_key => 'a', idempotency_for => '-1 hour'",
    "endless answer": "'k', idempotency_key => 'a', idempotency_for => '300000 years'",
    "attempts": "'k', max_attempts => 0",
}


async def test_defaults_make_a_job_that_is_ready(rows: Rows) -> None:
    """A kind is enough: an empty payload, the queue `default`, priority 5, now."""
    row = await rows.row("select id, created from @schema@.enqueue('send_receipt')")

    job = await rows.job(row["id"])
    assert row["created"] is True
    assert (job["queue"], job["priority"], job["payload"], job["max_attempts"]) == ("default", 5, "{}", None)
    assert job["run_at"] == job["enqueued_at"]
    assert (await rows.reclaimed(row["id"])).fence == 1


async def test_everything_can_be_stated(rows: Rows) -> None:
    """By name, as a client without our library would write it."""
    job_id = await rows.value(
        """
        select id from @schema@.enqueue(
            'send_receipt', '{"order_id": 7}', queue => 'mail', run_at => now() + interval '1 day', priority => 0,
            idempotency_key => 'receipt:7', idempotency_for => '2 days', max_attempts => 3, headers => '{"a": "b"}'
        )
        """
    )

    job = await rows.job(job_id)
    assert (job["kind"], job["queue"], job["priority"], job["max_attempts"]) == ("send_receipt", "mail", 0, 3)
    assert (job["payload"], job["headers"], job["idempotency_key"]) == ('{"order_id": 7}', '{"a": "b"}', "receipt:7")
    assert job["run_at"] - job["enqueued_at"] == pytest.approx(timedelta(days=1), abs=timedelta(seconds=1))
    until = await rows.value("select until - now() from @schema@.idempotency_key")
    assert until == pytest.approx(timedelta(days=2), abs=timedelta(seconds=1))


async def test_a_key_that_is_taken_answers_with_the_earlier_job(rows: Rows) -> None:
    """As in the library: the same id, not created, nothing added."""
    first = await rows.row("select id, created from @schema@.enqueue('k', idempotency_key => 'a')")
    second = await rows.row("select id, created from @schema@.enqueue('k', idempotency_key => 'a')")

    assert (tuple(first), tuple(second)) == ((first["id"], True), (first["id"], False))
    assert await rows.count() == 1


async def test_a_trigger_enqueues_in_the_transaction_that_fires_it(rows: Rows) -> None:
    """The job exists exactly if the row does."""
    await rows.run(
        """
        create table @schema@.orders (id int);
        create function @schema@.on_order() returns trigger language plpgsql as $$
        begin
            perform @schema@.enqueue('send_receipt', jsonb_build_object('order_id', new.id));
            return new;
        end $$;
        create trigger receipt after insert on @schema@.orders for each row execute function @schema@.on_order();
        """
    )

    lost = rows.conn.transaction()
    await lost.start()
    await rows.run("insert into @schema@.orders values (1)")
    await lost.rollback()
    await rows.run("insert into @schema@.orders values (2)")

    assert await rows.value("select array_agg(payload) from @schema@.job") == ['{"order_id": 2}']


async def test_bad_arguments_are_explained(rows: Rows) -> None:
    """Each is refused as an invalid parameter, by a message with our name and a hint that says what to pass."""
    answers = {}
    for name, arguments in BAD.items():
        try:
            answers[name] = str(await rows.value(f"select id from @schema@.enqueue({arguments})"))
        except asyncpg.PostgresError as error:
            said = error.as_dict()
            ours = said["sqlstate"] == "22023" and said["message"].startswith("jobq: ") and "hint" in said
            answers[name] = "explained" if ours else f"{said['sqlstate']}: {said['message']}"

    assert answers == dict.fromkeys(BAD, "explained")
    assert await rows.count() == 0


async def test_a_hostile_search_path_changes_nothing(rows: Rows) -> None:
    """Operators and functions of the caller's are not taken for the server's."""
    await rows.run(
        """
        create function @schema@.nextval(text) returns bigint language sql as 'select -1::bigint';
        create function @schema@.clock_timestamp() returns timestamptz language sql as
            $$ select 'epoch'::timestamptz $$;
        set search_path = @schema@, pg_catalog
        """
    )

    job_id = await rows.value("select id from enqueue('k')")

    assert job_id == 1
    assert await rows.state_of(job_id) is State.WAITING
    assert (await rows.job(job_id))["run_at"].year > 2000
