from __future__ import annotations

import pytest
from msgspec.structs import replace

from treadle.host import (
    TAIL_LINES,
    Fault,
    aborted_fault,
    advice,
    clean,
    deadline_fault,
    duration,
    limit_ends,
    quiet_fault,
    says_logged_out,
    startup_fault,
    stuck_fault,
    tail,
)


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
    assert duration(seconds) == words


def test_a_limit_says_when_it_ends_unless_that_makes_no_sense() -> None:
    assert limit_ends(1_800_000_000) == "The limit ends at 2027-01-15 08:00 UTC."
    assert limit_ends(None) == ""
    assert limit_ends(1e30) == ""


def test_last_words_have_an_end_no_colours_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "hunter2-hunter2")
    noise = "".join(f"line {number}\n\n" for number in range(100))
    shown = tail(
        noise + "\x1b[31mpanic\x1b[0m with hunter2-hunter2, mine-all-mine and sk-abcdefgh12345\n", ["mine-all-mine"]
    )
    assert len(shown.splitlines()) == TAIL_LINES
    assert shown.endswith("panic with [redacted], [redacted] and [redacted]")


def test_a_text_of_the_provider_has_an_end() -> None:
    assert len(clean("x" * 100_000)) < 3000
    assert clean("401 for Bearer abcdefgh12345678\x07") == "401 for Bearer [redacted]"


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
    assert says_logged_out(text)
    assert says_logged_out("the turn failed", text)


@pytest.mark.parametrize("text", ["401 Unauthorized", "oauth problem", "auth profile x"])
def test_weak_words_do_not_count_on_standard_error(text: str) -> None:
    assert says_logged_out(text)
    assert not says_logged_out("the turn failed", f"plugin prewarm: {text}")


@pytest.mark.parametrize(
    "fault",
    [
        startup_fault("codex", "no config"),
        stuck_fault("codex", 5),
        stuck_fault("codex", 30, "start the turn"),
        quiet_fault("codex", 90),
        deadline_fault(600, "idle"),
        deadline_fault(600, "turn"),
        aborted_fault("It was closed."),
    ],
)
def test_a_runtime_that_is_of_no_use_any_more_says_what_to_do(fault: Fault) -> None:
    assert fault.replace_runtime
    assert fault.retire  # by its former name
    assert fault.advice
    assert fault.message.endswith((".", "no config"))


def test_what_the_message_says_already_is_not_said_again() -> None:
    assert "another model" in advice("overloaded", "503 from the server")
    assert advice("overloaded", "The model has no free capacity now. Try again later.") == ""
    assert str(Fault(kind="network", message="no route", advice="Look.")) == "no route. Look."
    assert str(Fault(kind="network", message="No route.", advice="Look.")) == "No route. Look."


def test_the_former_name_of_a_field_is_taken_and_given() -> None:
    assert Fault(kind="dead", message="gone", retire=True).replace_runtime
    fault = Fault(kind="dead", message="gone")
    assert (fault.retire, replace(fault, replace_runtime=True).retire) == (False, True)
