"""The real claude through our runner, on the mock model: what works, what fails, who is asked, and what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.peers import installed
from interop.runners.driving import (
    DEADLINE_S,
    check_cancel_in_a_tool,
    check_closing_in_a_tool,
    check_two_at_once,
    drain,
    ends,
    staged,
)
from treadle.runners import (
    ActionEvent,
    ApprovalAnswer,
    ApprovalAsk,
    ClaudeRunner,
    CompletedEvent,
    ResumeToken,
    StartedEvent,
    TextDelta,
    Timeouts,
)
from treadle.testing import EngineHome

pytestmark = [pytest.mark.interop, pytest.mark.anyio]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    with staged(tmp_path, monkeypatch) as home:
        yield home


def claude(stage: EngineHome, **choices: Any) -> ClaudeRunner:
    env = {**stage.env("claude"), "CLAUDE_CODE_MAX_RETRIES": "1"}
    # On a busy machine its end takes its time; no test here is about an end that does not come.
    patient = Timeouts(linger=DEADLINE_S, grace=DEADLINE_S)
    return ClaudeRunner(str(installed("claude")), env=env, cwd=stage.project, **{"timeouts": patient, **choices})


async def test_an_answer_and_the_same_session_again(stage: EngineHome) -> None:
    runner = claude(stage, model="mock-model", effort="high")
    prompt = "--not-an-option ✓\n" + "x" * (1 << 20) + "\nlast line"
    first = await drain(runner.run(prompt))
    assert [type(event) for event in first] == [StartedEvent, CompletedEvent]
    assert (first[0].title, first[0].meta["cwd"]) == ("mock-model", str(stage.project))
    assert (first[-1].ok, first[-1].answer) == (True, "pong: last line")
    assert any(prompt in seen for seen in stage.model.prompts())  # all of it, unchanged
    again = await drain(runner.run("USERS?", first[-1].resume))
    assert (again[-1].answer, again[-1].resume) == ("users=2", first[-1].resume)
    assert again[-1].usage == first[-1].usage  # of each run alone
    assert runner.extract_resume(runner.format_resume(again[-1].resume)) == first[-1].resume


async def test_pieces_of_an_answer(stage: EngineHome) -> None:
    events = await drain(claude(stage, stream=True).run("hello"))
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(pieces) == events[-1].answer == "pong: hello"


@pytest.mark.parametrize(("command", "ok"), [("echo hi | tee made.txt", True), ("exit 3", False)])
async def test_a_tool(stage: EngineHome, command: str, ok: bool) -> None:
    events = await drain(claude(stage, allowed_tools=["Bash"]).run(f"RUN:{command}"))
    assert ends(events)[-1] == ("command", command, ok)
    assert events[-1].ok
    tool = events[-2].action.detail
    assert tool.get("exit_code") == (None if ok else 3)
    assert tool["output"] == ("hi" if ok else "Exit code 3")
    assert (stage.project / "made.txt").exists() == ok


async def test_a_subagent_and_what_it_does(stage: EngineHome) -> None:
    task = r'CALL:Agent {"description": "look", "prompt": "RUN\u003aecho below", "subagent_type": "general-purpose"}'
    events = await drain(claude(stage, allowed_tools=["Bash"]).run(task))
    assert ends(events)[1:] == [("command", "echo below", True), ("subagent", "look", True)]
    (above,) = [event.action.id for event in events if isinstance(event, ActionEvent) and event.phase == "started"][:1]
    below = next(event.action for event in events[1:-1] if event.action.kind == "command")
    assert below.detail["parent_tool_use_id"] == above
    assert events[-1].usage["input_tokens"] == 4 * (11 + 3)  # the subagent's share too


@pytest.mark.parametrize(
    ("prompt", "error"),
    [("HTTP:401", "401 mock error 401"), ("HTTP:500", "500 mock error 500"), ("CUT", "API"), ("DROP", "API")],
)
async def test_a_model_that_fails(stage: EngineHome, prompt: str, error: str) -> None:
    events = await drain(claude(stage).run(prompt))
    completed = events[-1]
    assert (completed.ok, completed.answer) == (False, "")
    assert error in completed.error
    retries = [(event.action.id, event.phase, event.ok) for event in events[1:-1]]
    assert retries == [("claude.retry", "started", None), ("claude.retry", "completed", False)]
    assert completed.resume is not None


async def test_a_session_that_is_not_there(stage: EngineHome) -> None:
    token = ResumeToken("claude", "00000000-0000-7000-8000-000000000000")
    (completed,) = await drain(claude(stage).run("hi", token))
    assert (completed.ok, completed.resume) == (False, token)
    assert completed.error.startswith("No conversation found")


async def test_a_word_that_claude_does_not_know(stage: EngineHome) -> None:
    run = claude(stage, extra_args=["--no-such-option"]).run("hi")
    assert (await drain(run))[-1].error == "claude failed (rc=1)."
    assert "--no-such-option" in run.stderr


async def test_cancel_in_the_middle_of_a_tool_leaves_nothing(stage: EngineHome) -> None:
    events = await check_cancel_in_a_tool(claude(stage, allowed_tools=["Bash"]), stage)
    assert ends(events)[-1][2] is False


async def test_closing_in_the_middle_of_a_tool_leaves_nothing(stage: EngineHome) -> None:
    await check_closing_in_a_tool(claude(stage, allowed_tools=["Bash"]), stage)


async def test_two_at_once_in_one_session_are_both_remembered(
    stage: EngineHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The lock alone keeps them apart: nobody waits for a process that is still there.
    monkeypatch.setattr("treadle.runners.engine_process.LEFTOVER_S", 0.0)
    await check_two_at_once(lambda: claude(stage), stage)


# --- who is asked ---


async def test_without_anybody_to_ask_a_tool_is_refused_and_told_so(stage: EngineHome) -> None:
    events = await drain(claude(stage).run("RUN:touch made.txt"))
    assert ends(events)[1:] == [
        ("command", "touch made.txt", False),
        ("warning", "Bash was not allowed: touch made.txt", False),
    ]
    assert not (stage.project / "made.txt").exists()


async def boom(ask: ApprovalAsk) -> bool:
    raise RuntimeError("nobody is at home")


def always(answer: ApprovalAnswer | bool) -> Any:
    async def approve(ask: ApprovalAsk) -> ApprovalAnswer | bool:
        assert (ask.tool, ask.input["command"]) == ("Bash", "touch made.txt")
        return answer

    return approve


@pytest.mark.parametrize(
    ("approve", "files", "said"),
    [
        (always(True), {"made.txt"}, "no output"),
        (always(ApprovalAnswer(allow=True, input={"command": "touch other.txt"})), {"other.txt"}, "no output"),
        (always(ApprovalAnswer(allow=False, message="not today")), set(), "not today"),
        (boom, set(), "nobody could be asked"),
    ],
    ids=["yes", "yes, but", "no", "failure"],
)
async def test_somebody_is_asked(stage: EngineHome, approve: Any, files: set[str], said: str) -> None:
    events = await drain(claude(stage, approve=approve).run("RUN:touch made.txt"))
    assert events[-1].ok
    assert said in events[-1].answer
    assert {file.name for file in stage.project.iterdir()} == files
    allowed = bool(files)
    assert ("command", "touch made.txt", allowed) in ends(events)
    assert ("warning" in [kind for kind, *_ in ends(events)]) != allowed


async def test_cancel_while_somebody_is_asked(stage: EngineHome) -> None:
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def approve(ask: ApprovalAsk) -> bool:
        asked.set()
        try:
            return await asyncio.Event().wait()
        finally:
            dropped.set()

    run = claude(stage, approve=approve).run("RUN:touch made.txt")
    ended = asyncio.ensure_future(drain(run))
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    run.cancel()
    assert (await ended)[-1].error == "cancelled"
    assert dropped.is_set()
    assert not (stage.project / "made.txt").exists()


async def test_questions_in_a_session_that_goes_on(stage: EngineHome) -> None:
    token = (await drain(claude(stage).run("hello")))[-1].resume
    runner = claude(stage, approve=always(True))
    assert (await drain(runner.run("RUN:touch made.txt", token)))[-1].ok
    assert (await drain(runner.run("USERS?", token)))[-1].answer == "users=3"
