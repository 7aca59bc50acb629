"""What a caller chooses for a run: nothing of it can become an option of the engine, and what is no text is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treadle.errors import ArgumentTypeError, ArgumentValueError
from treadle.runners import BUILT_IN, ClaudeRunner, CompletedEvent, Job, PiRunner, ResumeToken, RunOptions, make_runner

NO_TEXT = ["a\0b", "a\ud800b"]
OPTIONS = ["-x", "--", "-", "--dangerously-skip-permissions", "-c=sandbox_mode=danger-full-access", ""]


@pytest.mark.parametrize("member", ["model", "effort"])
@pytest.mark.parametrize("value", [*OPTIONS, *NO_TEXT])
@pytest.mark.parametrize("engine", BUILT_IN)
def test_a_model_or_an_effort_is_never_an_option(engine: str, value: str, member: str) -> None:
    chosen: dict[str, Any] = {member: value}
    with pytest.raises(ArgumentValueError, match=member):
        make_runner(engine, **chosen)
    with pytest.raises(ArgumentValueError, match=member):
        make_runner(engine).run("hi", options=RunOptions(**chosen))
    with pytest.raises(ArgumentValueError, match=member):
        _ = Job(engine=engine, prompt="hi", **chosen).options


def test_what_else_becomes_a_word_of_the_command_line_is_no_option_either() -> None:
    for made in (
        lambda: PiRunner(provider="--extension=x"),
        lambda: ClaudeRunner(permission_mode="--dangerously-skip-permissions"),
        lambda: ClaudeRunner(allowed_tools=["--mcp-config=x"]),
    ):
        with pytest.raises(ArgumentValueError, match="would be taken for an option"):
            made()


@pytest.mark.parametrize("engine", BUILT_IN)
def test_a_prompt_that_looks_like_an_option_is_not_on_the_command_line(engine: str) -> None:
    runner = make_runner(engine)
    words = runner.build_args("--last", None, state=runner.new_state("--last", None))
    assert "--last" not in words


@pytest.mark.parametrize("engine", BUILT_IN)
@pytest.mark.parametrize("prompt", NO_TEXT)
def test_a_prompt_that_is_no_text_is_refused(engine: str, prompt: str) -> None:
    with pytest.raises(ArgumentValueError, match="prompt has"):
        make_runner(engine).run(prompt)


@pytest.mark.anyio
@pytest.mark.parametrize("engine", BUILT_IN)
@pytest.mark.parametrize("session", ["--last", "-x", "a\0b", "a\ud800b", "a\nb", ""])
async def test_a_session_that_is_no_session_starts_nothing(
    engine: str, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    runner = make_runner(engine, command="/no/such/program", cwd=tmp_path)
    [last] = [event async for event in runner.run("hi", ResumeToken(engine, session))]
    assert isinstance(last, CompletedEvent)
    assert not last.ok
    assert "is no session of" in (last.error or "")


@pytest.mark.parametrize("value", [5, b"/"])
def test_a_folder_that_is_no_path_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="cwd"):
        RunOptions(cwd=value)
