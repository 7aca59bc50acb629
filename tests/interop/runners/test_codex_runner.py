"""`CodexRunner` on the real codex and on `treadle`, which speaks the same way; the same cases, the same events."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from interop.peers import installed
from interop.runners.driving import check_cancel_in_a_tool, drain, ends, staged
from treadle.runners import ActionEvent, CodexRunner, CompletedEvent, ResumeToken, Runner, StartedEvent, TreadleRunner
from treadle.testing import EngineHome

pytestmark = [pytest.mark.interop, pytest.mark.anyio]
NOBODY: Final = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    with staged(tmp_path, monkeypatch) as home:
        yield home


@pytest.fixture(params=["codex", "treadle by CodexRunner", "treadle"])
def runner(request: pytest.FixtureRequest, stage: EngineHome) -> Runner:
    if request.param == "codex":
        return CodexRunner(str(installed("codex")), env=stage.env("codex"), cwd=stage.project)
    if request.param == "treadle":
        return TreadleRunner(env=stage.env("treadle"), cwd=stage.project)
    return CodexRunner([sys.executable, "-m", "treadle"], env=stage.env("treadle"), cwd=stage.project)


def _extra(runner: Runner) -> int:
    """codex tells about its environment in a message of the user, we in one of the developer."""
    return 0 if isinstance(runner, TreadleRunner) or "treadle" in runner.command else 1


def shapes(events: list[Any]) -> list[tuple[str, ...]]:
    return [
        (event.type, event.action.kind, event.phase) if isinstance(event, ActionEvent) else (event.type,)
        for event in events
    ]


async def test_an_answer_and_the_same_session_again(runner: Runner, stage: EngineHome) -> None:
    prompt = "--not-an-option ✓\n" + "x" * 1_000_000 + "\nlast line"
    first = await drain(runner.run(prompt))
    assert shapes(first) == [("started",), ("action", "turn", "started"), ("completed",)]
    assert (first[-1].ok, first[-1].answer) == (True, "pong: last line")
    assert any(prompt in seen for seen in stage.model.prompts())  # all of it, unchanged
    again = await drain(runner.run("USERS?", first[-1].resume))
    assert (again[-1].answer, again[-1].resume) == (f"users={2 + _extra(runner)}", first[-1].resume)
    assert again[-1].usage == first[-1].usage  # of each run alone, though codex counts for the session
    assert runner.extract_resume(runner.format_resume(again[-1].resume)) == first[-1].resume


@pytest.mark.parametrize(("command", "code"), [("echo hi | tee made.txt", 0), ("echo no; exit 3", 3)])
async def test_a_tool(runner: Runner, stage: EngineHome, command: str, code: int) -> None:
    events = await drain(runner.run(f"RUN:{command}"))
    assert shapes(events)[2:-1] == [("action", "command", "started"), ("action", "command", "completed")]
    assert ends(events) == [("command", command, code == 0)]
    assert events[-2].action.detail["exit_code"] == code
    assert events[-1].ok
    assert events[-1].answer.startswith("tool said:")
    assert (stage.project / "made.txt").exists() == (code == 0)


async def test_a_patch(runner: Runner, stage: EngineHome) -> None:
    patch = r'CALL:apply_patch "*** Begin Patch\n*** Add File: note.txt\n+hello\n*** End Patch\n"'
    events = await drain(runner.run(patch))
    assert ends(events) == [("file_change", "add note.txt", True)]
    assert (stage.project / "note.txt").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [("HTTP:401", "401 Unauthorized"), ("HTTP:500", "500"), ("DROP", "stream"), ("CUT", "stream")],
)
async def test_a_model_that_fails(runner: Runner, prompt: str, words: str) -> None:
    events = await drain(runner.run(prompt))
    completed = events[-1]
    assert (completed.ok, completed.answer) == (False, "")
    assert words in completed.error or (prompt == "HTTP:500" and "high demand" in completed.error)
    assert completed.resume is not None
    told = [event for event in events if isinstance(event, ActionEvent) and event.action.kind != "turn"]
    assert {event.action.id for event in told} <= {f"{runner.engine.name}.reconnect"}  # nothing is said twice
    # codex tries again even when it is not let in; we do not.
    tries = 0 if prompt == "HTTP:401" and not _extra(runner) else 3
    assert [event.phase for event in told] == ["started", "updated", "updated"][:tries]


async def test_a_model_that_fails_twice(runner: Runner) -> None:
    assert (await drain(runner.run("FLAKY:2:once")))[-1].answer == "pong: FLAKY:2:once"


async def test_a_session_that_is_not_there(runner: Runner) -> None:
    name = runner.engine.name
    run = runner.run("hi", ResumeToken(name, NOBODY))
    events = await drain(run)
    assert not any(isinstance(event, StartedEvent) for event in events)
    assert events[-1] == CompletedEvent(name, False, "", ResumeToken(name, NOBODY), f"{name} exec failed (rc=1).")
    assert NOBODY in run.stderr


async def test_cancel_in_the_middle_of_a_tool_leaves_nothing(runner: Runner, stage: EngineHome) -> None:
    await check_cancel_in_a_tool(runner, stage)


async def test_two_resumes_at_once_lose_no_turn(runner: Runner, stage: EngineHome) -> None:
    token = (await drain(runner.run("one")))[-1].resume
    both = [asyncio.ensure_future(drain(runner.run(f"{word} GATE:{word}", token))) for word in ("two", "three")]
    stage.model.open_gate("two")
    stage.model.open_gate("three")
    assert [(await events)[-1].ok for events in both] == [True, True]
    assert (await drain(runner.run("USERS?", token)))[-1].answer == f"users={4 + _extra(runner)}"
