"""What the failures of engines are, by how they ended and what they said."""

from __future__ import annotations

import pytest

from treadle.host import engine_fault
from treadle.runners import Ending


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("Invalid API key · Please run /login", "auth"),
        ("401 mock error 401", "auth"),
        ("Credit balance is too low", "usage_limit"),
        ("You have hit your limit", "usage_limit"),
        ("Prompt is too long", "context_window"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limited"),
        ("API Error: 529 Overloaded", "overloaded"),
        ("Unable to connect to API (ECONNREFUSED)", "network"),
        ("the model gave up", "other"),
    ],
)
def test_failures_by_their_words(error: str, kind: str) -> None:
    fault = engine_fault("claude", error, ending=Ending(exit_code=0), log_in="claude, and in it /login")
    assert fault.kind == kind
    assert ("Log in: claude" in fault.advice) == (kind == "auth")


def test_a_program_that_died_tells_its_code_and_its_last_words_without_secrets() -> None:
    stderr = "\x1b[31mpanic\x1b[0m: token hunter2hunter2 and Bearer abcdefghijkl"
    fault = engine_fault(
        "pi", "pi failed (rc=137).", ending=Ending(exit_code=137), stderr=stderr, secrets=["hunter2hunter2"]
    )
    assert (fault.kind, fault.exit_code, fault.retire) == ("dead", 137, False)
    assert "killed by signal 9" in fault.message
    assert fault.stderr_tail == "panic: token [redacted] and Bearer [redacted]"
    killed = engine_fault("pi", "pi failed (rc=137).", ending=Ending(exit_code=137), stderr="plugin: 429, again later")
    assert (killed.kind, killed.retryable) == ("dead", False)
    gone = engine_fault("pi", "pi failed (rc=1).", ending=Ending(exit_code=1), lost_session=True)
    assert gone.retire
    assert engine_fault("pi", "stopped", ending=Ending(exit_code=None, stopped="stopped")).kind == "deadline"


def test_a_login_that_is_missing_is_only_a_guess() -> None:
    failed, killed = (
        engine_fault("pi", "pi failed.", ending=Ending(exit_code=code), no_login=True, log_in="pi, and in it /login")
        for code in (1, 137)
    )
    assert (failed.kind, failed.advice) == ("dead", "There seems to be no login; log in: pi, and in it /login")
    assert (killed.kind, killed.advice) == ("dead", "")
