"""Resume lines: what is written can be read again, and nothing that is not an id ever becomes one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.runners import CodexRunner, ResumeToken, TreadleRunner

SESSION = "019b66fc-64c2-7a71-81cd-081c504cfeb2"
OTHER = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    "text",
    [
        f"codex resume {SESSION}",
        f"`codex resume {SESSION}`",
        f"done.\n\n  `codex resume {SESSION}`  \n",
        f"CODEX Resume {SESSION}",
        f"codex resume {SESSION}\r\nmore",
        f"`codex resume {OTHER}`\n`codex resume {SESSION}`",
        f"codex\tresume {SESSION}".replace("\t", " "),
    ],
)
def test_found(text: str) -> None:
    assert CodexRunner().extract_resume(text) == ResumeToken("codex", SESSION)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "codex resume",
        "codex resume --last",
        "codex resume -c x=y",
        "codex resume 019b66fc",
        f"text codex resume {SESSION}",
        f"> codex resume {SESSION}",
        f"codex exec resume {SESSION}",
        f"codex resume {SESSION} --full-auto",
        f"codex resume {SESSION}x",
        f"claude --resume {SESSION}",
        f"codex\nresume {SESSION}",
    ],
)
def test_not_found(text: str | None) -> None:
    assert CodexRunner().extract_resume(text) is None


@given(st.uuids())
def test_there_and_back(value: object) -> None:
    runner = CodexRunner()
    token = ResumeToken("codex", str(value))
    assert runner.format_resume(token) == f"`codex resume {value}`"
    assert runner.extract_resume(f"answer\n{runner.format_resume(token)}") == token


@given(st.text(max_size=60))
def test_nothing_else_becomes_an_id(text: str) -> None:
    found = CodexRunner().extract_resume(f"codex resume {text}")
    assert found is None or CodexRunner().engine.resume.fits(found.value)


def test_a_session_of_another_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="claude"):
        CodexRunner().format_resume(ResumeToken("claude", SESSION))


def test_ours_is_not_taken_for_codex() -> None:
    ours = TreadleRunner()
    line = ours.format_resume(ResumeToken("treadle", SESSION))
    assert CodexRunner().extract_resume(line) is None
    assert ours.extract_resume(line) == ResumeToken("treadle", SESSION)
    assert ours.extract_resume(f"codex resume {SESSION}") is None


def test_the_events_are_importable_from_the_path_that_was_given_to_users() -> None:
    from treadle.runners import events, run_events

    names = "Action ActionEvent ActionKind CompletedEvent Event Level Phase ResumeToken StartedEvent TextDelta"
    assert all(getattr(events, name) is getattr(run_events, name) for name in names.split())
