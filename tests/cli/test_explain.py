"""`jobq explain`: what the SQL function says, for people and for programs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.cli.conftest import Call
from tests.db.rows import error_json

if TYPE_CHECKING:
    from tests.db.rows import Rows


async def test_it_says_why_in_one_sentence(rows: Rows, call: Call) -> None:
    """One line, and no more."""
    job_id = await rows.scheduled()

    ended = await call("explain", job_id)

    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(rf"send_receipt {job_id} is scheduled for \S+ \S+ \(in 59 min 5\d s\)\.\n", ended.out)


async def test_programs_get_the_reason_and_the_numbers(rows: Rows, call: Call) -> None:
    """A word that stays, beside the sentence that may be reworded."""
    job_id = await rows.waiting()

    found = json.loads((await call("explain", job_id, "--json")).out)

    assert found.keys() == {"id", "reason", "sentence", "numbers"}
    assert (found["id"], found["reason"]) == (job_id, "no_worker")
    assert (found["numbers"]["queue"], found["numbers"]["workers"]) == ("mail", 0)


async def test_what_an_error_holds_cannot_move_the_cursor(rows: Rows, call: Call) -> None:
    """The words of a handler's exception are anybody's."""
    job_id = await rows.dead(error_json("no\x1b[2Janswer"))

    ended = await call("explain", job_id)

    assert "\x1b" not in ended.out
    assert "no\\x1b[2Janswer" in ended.out


async def test_a_job_that_is_nowhere_is_a_failure(rows: Rows, call: Call) -> None:
    """As for `jobq jobs`."""
    ended = await call("explain", 4711)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("jobq: there is no job 4711: it is not committed yet")
