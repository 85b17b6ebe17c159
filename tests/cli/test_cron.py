"""`jobq cron`: what it shows of recurring entries, and what it does about them."""

from __future__ import annotations

import json
import re
from datetime import timedelta

from tests.cli.conftest import Call
from tests.db.entries import NAME, add_entry, ago, fire
from tests.db.rows import Rows


async def test_the_list_says_how_each_stands(rows: Rows, call: Call) -> None:
    """A line each, and a sentence for each that needs somebody."""
    await add_entry(rows, zone="Europe/Berlin")
    await fire(rows)

    ended = await call("cron", "list")

    header, line = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert header.split() == ["NAME", "STATE", "ENQUEUED", "NEXT", "EXPRESSION", "ZONE", "KIND"]
    # The tick that is enqueued is that of the coming minute, which may be over by now.
    assert re.match(r"report  well   +(in \d+ (s|min)|\d+ s ago) +in 1 min ", line)
    assert line.endswith("* * * * *   Europe/Berlin  send_receipt")


async def test_where_there_is_none_it_says_how_to_declare_one(rows: Rows, call: Call) -> None:
    """An empty table would leave open whether it is the right schema."""
    assert (await call("cron", "list")).out.startswith("No recurring entry: declare one with @queue.recurring")


async def test_what_should_have_run_and_did_not_is_marked(rows: Rows, call: Call) -> None:
    """With the tick, and with who did not do what: nobody enqueued it, nobody started it, it was too late."""
    await add_entry(rows)
    await rows.run("update @schema@.recurring set look_at = now() - interval '3 min'")
    unread = await call("cron", "list")
    await fire(rows)
    await ago(rows, timedelta(minutes=9))
    overdue = await call("cron", "list")
    await rows.run("update @schema@.recurring set next_tick = now() + interval '1 min'")
    await rows.run("update @schema@.job set run_at = now() - interval '9 min'")
    late = await call("cron", "list")
    await rows.run("delete from @schema@.job")
    await rows.run("update @schema@.recurring set missed_tick = now(), missed = 1200")
    missed = await call("cron", "list")

    tick = r"should have run at 20\d\d-\d\d-\d\d \d\d:\d\d UTC and did not"
    assert_says(overdue.out, f"report {tick}: no worker has enqueued it")
    assert_says(
        unread.out, "report is due at a time that nobody knows: no worker has looked at it since it was changed"
    )
    assert_says(late.out, rf"report {tick}: nobody has started job \d+; see `jobq explain \d+`")
    assert_says(missed.out, rf"report {tick}: it was too late when a worker came \(1,200 missed in all\)")


def assert_says(text: str, pattern: str) -> None:
    """The last line is this sentence."""
    assert re.fullmatch(pattern, text.splitlines()[-1]), text


async def test_programs_get_every_entry_whole(rows: Rows, call: Call) -> None:
    """With the state as a word that stays."""
    await add_entry(rows)

    (entry,) = json.loads((await call("cron", "list", "--json")).out)["entries"]

    assert (entry["name"], entry["state"], entry["expression"]) == ("report", "well", "* * * * *")
    assert entry["is_forsaken"] is False


async def test_the_next_ticks_are_shown_in_the_zone_and_in_utc(rows: Rows, call: Call) -> None:
    """So that who reads it need not reckon, at a change of clocks least of all."""
    await add_entry(rows, "30 2 15 7 *", zone="Europe/Berlin")

    ended = await call("cron", "next", "report", "--count", 3)
    found = json.loads((await call("cron", "next", "report", "--count", 1, "--json")).out)

    first, second, third = ended.out.splitlines()
    assert re.fullmatch(r"[A-Z][a-z]{2} 20\d\d-07-15 02:30 CEST  20\d\d-07-15 00:30 UTC", first)
    assert first[4:8] < second[4:8] < third[4:8]
    year = first[4:8]
    assert found == {
        "name": "report",
        "ticks": [{"local": f"{year}-07-15T02:30:00+02:00", "utc": f"{year}-07-15T00:30:00+00:00"}],
    }
    assert len((await call("cron", "next", "report")).out.splitlines()) == 20


async def test_a_pause_has_who_and_why(rows: Rows, call: Call) -> None:
    """And the list shows both; a second one is refused, and changes neither."""
    await add_entry(rows)
    await fire(rows)

    paused = await call("cron", "pause", "report", "--why", "the ledger\x1b is closed", "--by", "ann")
    again = await call("cron", "pause", "report", "--why", "no")
    shown = await call("cron", "list")
    resumed = await call("cron", "resume", "report")
    twice = await call("cron", "resume", "report", "--json")

    assert (paused.code, paused.out) == (0, "report is paused\n")
    assert await rows.value("select count(*) from @schema@.job") == 0
    assert again.code == twice.code == 1
    assert "is paused already, by ann: the ledger" in again.err
    assert shown.out.splitlines()[1].split()[:3] == ["report", "paused", "-"]
    assert shown.out.splitlines()[-1].endswith(r"by ann: the ledger\x1b is closed")
    assert (resumed.code, resumed.out) == (0, "report is resumed\n")
    assert "is not paused" in twice.err


async def test_run_now_says_which_job_it_is(rows: Rows, call: Call) -> None:
    """So that one can look at it."""
    await add_entry(rows)

    job_id = json.loads((await call("cron", "run", "report", "--json")).out)["job_id"]

    assert await rows.ids() == [job_id]
    assert (await call("cron", "run", "report")).out.endswith("of report is enqueued\n")


async def test_what_is_removed_is_gone(rows: Rows, call: Call) -> None:
    """With what waits for its tick."""
    await add_entry(rows)
    await fire(rows)

    assert (await call("cron", "remove", "report")).out == "report is removed\n"

    assert await rows.ids() == []
    ended = await call("cron", "remove", "report")
    assert "there is no recurring entry 'report': `jobq cron list`" in ended.err


async def test_a_job_that_waits_for_its_tick_says_so(rows: Rows, call: Call) -> None:
    """`jobq explain` names the entry, and psql says the same."""
    await add_entry(rows)
    job_id = await fire(rows)

    ended = await call("explain", job_id)
    found = json.loads((await call("explain", job_id, "--json")).out)

    assert ended.out.startswith(f"send_receipt {job_id} waits for its tick, 20")
    assert ended.out.endswith(f": recurring {NAME}.\n")
    assert (found["reason"], found["numbers"]["recurring"]) == ("scheduled", NAME)
