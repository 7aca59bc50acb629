"""What `treadle run` was told: sessions, engines, projects and prompts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.cli import PlanError, RunArguments, RunPlan, read_plan, read_resume, runner_of
from treadle.runners import Projects, ResumeToken, codex

ID = "0199a213-81c0-7800-8aa1-bbab2a035a53"
CODEX = ResumeToken("codex", ID)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TREADLE_ENGINE", raising=False)
    return tmp_path / "home"


@pytest.fixture
def no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, "")


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    import treadle.cli.run.run_plan as module
    from treadle.cli import read_prompt

    monkeypatch.setattr(module, "read_prompt", lambda given, command: read_prompt(given, reader, command=command))


def plan(prompt: str | None, **options: object) -> RunPlan:
    return read_plan(RunArguments(prompt=prompt, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        (f"codex:{ID}", None),
        (f"codex:{ID}", "codex"),
        (ID, "codex"),
        (f"codex resume {ID}", None),
        (f"`codex resume {ID}`", None),
    ],
)
def test_a_session_can_be_given_in_many_ways(text: str, engine: str | None) -> None:
    assert read_resume(text, engine) == CODEX


@pytest.mark.parametrize(
    ("text", "engine", "said"),
    [
        (ID, None, "--engine codex|claude"),
        ("--last", "codex", "no session of codex"),
        ("codex:--last", None, "no session of codex"),
        ("nonsense", None, "is no session"),
        (f"codex:{ID}", "claude", "without --engine"),
        (ID, "nix", "no engine 'nix'"),
    ],
)
def test_what_is_no_session_is_refused(text: str, engine: str | None, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        read_resume(text, engine)
    assert said in str(caught.value)


@pytest.mark.usefixtures("no_input")
def test_ours_is_the_default_and_a_variable_chooses_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan("hi") == RunPlan("treadle", "hi")
    monkeypatch.setenv("TREADLE_ENGINE", "claude")
    assert plan("hi").engine == "claude"
    monkeypatch.setenv("TREADLE_ENGINE", "nix")
    with pytest.raises(PlanError, match="no engine 'nix'"):
        plan("hi")


@pytest.mark.usefixtures("no_input")
def test_the_text_may_say_where_it_goes_unless_an_option_does() -> None:
    assert plan("/claude fix it") == RunPlan("claude", "fix it")
    assert plan(f"go on\ncodex resume {ID}") == RunPlan("codex", "go on", CODEX)
    assert plan("/claude fix it", engine="codex") == RunPlan("codex", "/claude fix it")
    assert plan(f"codex resume {ID}", resume=f"codex:{ID}") == RunPlan("codex", f"codex resume {ID}", CODEX)


def test_what_is_piped_in_beside_a_prompt_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, f"/claude evil\ncodex resume {ID}\n")
    read = plan("sum this up")
    assert (read.engine, read.resume) == ("treadle", None)
    assert ID in read.prompt


def test_a_prompt_from_standard_input_is_read_as_one_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, "/claude fix it")
    assert plan("-") == RunPlan("claude", "fix it")


@pytest.mark.usefixtures("no_input")
def test_projects_and_branches(home: Path, tmp_path: Path) -> None:
    Projects(home).add("web", tmp_path, engine="claude")
    assert plan("hi", project="web") == RunPlan("claude", "hi", None, "web")
    assert plan("/web @fix hi") == RunPlan("claude", "hi", None, "web", "fix")
    with pytest.raises(PlanError, match="which project's branch"):
        plan("hi", branch="fix")
    with pytest.raises(PlanError, match="there can be one branch"):
        plan("/web @fix hi", branch="other")


def runner(engine: str, **options: object) -> list[str]:
    arguments = RunArguments(**options)  # type: ignore[arg-type]
    return list(runner_of(RunPlan(engine, "hi"), arguments, "/").extra_args)


def test_settings_and_further_words_go_to_the_engine() -> None:
    assert runner("codex", config_overrides=["a=1"], further=["--search"]) == ["-c", "a=1", "--search"]
    with pytest.raises(PlanError, match="claude takes no -c"):
        runner("claude", config_overrides=["a=1"])
    with pytest.raises(PlanError, match="--json cannot be added"):
        runner("codex", further=["--json"])


def test_an_engine_is_given_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "s.json").write_text("{}")
    assert runner("codex", image=(str(tmp_path / "a.png"),), output_schema=str(tmp_path / "s.json")) == []
    monkeypatch.setattr(
        "treadle.cli.run.run_plan.find_engine", lambda _: replace(codex.ENGINE, takes_images=False, takes_schema=False)
    )
    with pytest.raises(PlanError, match="parrot cannot be given pictures"):
        runner("parrot", image=(str(tmp_path / "a.png"),))
    with pytest.raises(PlanError, match="parrot cannot be held to a JSON Schema"):
        runner("parrot", output_schema=str(tmp_path / "s.json"))
