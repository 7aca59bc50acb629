from __future__ import annotations

import pytest

from treadle.host import failures
from treadle.host.faults import Fault

NOON = 1_800_000_000.0 - 1_800_000_000.0 % 86400 + 12 * 3600


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.05, "0.05 s"),
        (45, "45 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (7800, "2 h 10 min"),
        (7200, "2 h"),
        (90_000, "1 day 1 h"),
        (180_000, "2 days 2 h"),
    ],
)
def test_durations_are_said_as_people_do(seconds: float, words: str) -> None:
    assert failures.duration(seconds) == words


def test_a_usage_limit_says_when_it_ends() -> None:
    fault = failures.usage_limit("You've hit your limit.", resets_at=NOON + 7500 + 300, now=NOON)
    assert fault.message == "The usage limit is reached: You've hit your limit. It resets at 14:10 UTC, in 2 h 10 min."
    assert fault.resets_at == NOON + 7800
    assert not fault.retryable
    assert not fault.retire


def test_a_reset_on_another_day_has_its_date_and_one_in_the_past_is_over() -> None:
    assert failures.resets(NOON + 3 * 86400, NOON) == "resets at 12:00 UTC on 18 January, in 3 days"
    assert failures.resets(NOON - 1, NOON) == "should have been reset by now"
    assert "makes no sense" in failures.resets(1e30, NOON)


def test_a_dead_process_is_told_with_its_end_and_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "hunter2-hunter2")
    noise = "".join(f"line {number}\n" for number in range(100))
    fault = failures.dead(
        "codex", exit_code=101, stderr=noise + "\x1b[31mpanic\x1b[0m with hunter2-hunter2 and sk-abcdefgh12345\n"
    )
    assert fault.message == "codex has ended with exit code 101 in the middle of its work."
    assert fault.retire
    assert fault.exit_code == 101
    assert len(fault.stderr_tail.splitlines()) == failures.TAIL_LINES
    assert fault.stderr_tail.endswith("panic with [redacted] and [redacted]")
    assert "starts it again" in str(fault)
    assert "SIGKILL" in failures.dead("codex", exit_code=-9).message
    assert "signal 99" in failures.dead("codex", exit_code=-99).message


def test_a_missing_login_names_the_command() -> None:
    fault = failures.auth("codex", "codex login", detail="401 for Bearer abcdefgh12345678")
    assert "Log in again: codex login" in fault.advice
    assert "abcdefgh12345678" not in str(fault)
    assert fault.retire


def test_a_text_of_the_provider_has_an_end() -> None:
    assert len(failures.other("x" * 100_000).message) < 3000
    assert failures.other("").message


@pytest.mark.parametrize(
    "text",
    [
        "invalid_grant",
        "a refresh token was revoked",
        "token has expired",
        "Not authenticated",
        "please login",
    ],
)
def test_strong_words_mean_a_missing_login_wherever_they_are(text: str) -> None:
    assert failures.says_logged_out(text)
    assert failures.says_logged_out("the turn failed", text)


@pytest.mark.parametrize("text", ["401 Unauthorized", "oauth problem", "auth profile x"])
def test_weak_words_do_not_count_on_standard_error(text: str) -> None:
    assert failures.says_logged_out(text)
    assert not failures.says_logged_out("the turn failed", f"plugin prewarm: {text}")


@pytest.mark.parametrize(
    "fault",
    [
        failures.missing("codex", "npm i -g @openai/codex"),
        failures.startup("codex", "no config", stderr="bad"),
        failures.stuck("codex", 5),
        failures.stuck("codex", 30, "start the turn"),
        failures.quiet("codex", 90),
        failures.deadline(600, "idle"),
        failures.deadline(600, "turn"),
        failures.aborted("It was closed.", retire=True),
    ],
)
def test_a_runtime_that_is_of_no_use_any_more_says_what_to_do(fault: Fault) -> None:
    assert fault.retire
    assert fault.advice
    assert fault.message.endswith((".", "no config"))


@pytest.mark.parametrize("fault", [failures.overloaded(), failures.rate_limited("slow down"), failures.network("dns")])
def test_what_passes_may_be_tried_again(fault: Fault) -> None:
    assert fault.retryable
    assert not fault.retire
