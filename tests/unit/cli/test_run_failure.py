"""Why a run failed: without secrets, without control characters, and with what to type next."""

from __future__ import annotations

from typing import Literal

import pytest

from treadle.cli import advice, failure_reason, stderr_lines
from treadle.cli.run.run_view import MAX_LINE, TAIL_LINES
from treadle.runners import CompletedEvent, Ending, ResumeToken

TOKEN = ResumeToken("codex", "0199a213-81c0-7800-8aa1-bbab2a035a53")


def failed(error: str, engine: str = "codex", resume: ResumeToken | None = None) -> CompletedEvent:
    return CompletedEvent(engine, ok=False, answer="", error=error, resume=resume)


def test_secrets_and_control_characters_are_taken_out() -> None:
    said = "\x1b[31mError\x1b[0m: key hunter2hunter2 and sk-abcdefgh12345678\x1b]0;title\x07\n\n  at x\n"
    told = stderr_lines(said, ["hunter2hunter2"])
    assert told == ["Error: key [redacted] and [redacted]\\x1b]0;title\\x07", "  at x"]
    assert failure_reason(failed("Bearer abcdefghijkl is wrong\x1b[2J"), []) == "Bearer [redacted] is wrong\\x1b[2J"


def test_only_the_last_lines_are_shown_and_only_so_much_of_each() -> None:
    told = stderr_lines("\n".join(f"line {number} {'x' * 1000}" for number in range(100)), [])
    assert len(told) == TAIL_LINES
    assert told[-1].startswith("line 99 ")
    assert all(len(line) == MAX_LINE for line in told)


@pytest.mark.parametrize(
    ("error", "stderr", "expected"),
    [
        ("unexpected status 401 Unauthorized", "", "codex login"),
        ("codex exec failed (rc=1).", "Error: Not logged in", "codex login"),
        ("codex exec failed (rc=1).", "no rollout found for thread id 0199", "leave the session out"),
        ("codex exec failed (rc=1).", "segmentation fault", "treadle doctor codex"),
    ],
)
def test_what_to_type_next(error: str, stderr: str, expected: str) -> None:
    assert expected in advice(failed(error, resume=TOKEN), Ending(exit_code=1), stderr)


@pytest.mark.parametrize(("limit", "expected"), [("idle", "--idle-timeout"), ("total", "--timeout")])
def test_a_limit_that_was_too_short(limit: Literal["idle", "total"], expected: str) -> None:
    ending = Ending(exit_code=None, stopped="too long", limit=limit)
    assert expected in advice(failed("too long", resume=TOKEN), ending, "Error: Not logged in")


def test_an_engine_that_speaks_of_time_was_not_stopped_for_it() -> None:
    said = failed("the build did not end within 5 s")
    assert advice(said, Ending(exit_code=1), "").startswith("to try it out offline")


def test_an_engine_of_others_has_no_login_that_we_know() -> None:
    assert advice(failed("401", engine="other"), None, "") == "to try it out offline: treadle doctor other"
