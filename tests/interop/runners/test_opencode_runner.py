"""The real opencode through our runner, on the mock model. It needs ten seconds of work to say a word: few runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.peers import installed
from interop.runners.driving import DEADLINE_S, check_cancel_in_a_tool, drain, ends, staged
from treadle.runners import OpenCodeRunner, ResumeToken, StartedEvent, Timeouts
from treadle.testing import EngineHome

pytestmark = [pytest.mark.interop, pytest.mark.anyio, pytest.mark.timeout(400)]
IDLE_S = 45.0  # it reaches the model before that, on a machine that is not overloaded


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    with staged(tmp_path, monkeypatch) as stage:
        yield stage


def opencode(stage: EngineHome, *, idle: float | None = None, **choices: Any) -> OpenCodeRunner:
    patient = Timeouts(idle=idle, linger=DEADLINE_S, grace=DEADLINE_S)
    program = str(installed("opencode"))
    return OpenCodeRunner(program, env=stage.env("opencode"), cwd=stage.project, timeouts=patient, **choices)


async def test_a_session(stage: EngineHome) -> None:
    """A tool, two more runs of the session at once, another session meanwhile, and what is remembered of all that."""
    model, runner = stage.model, opencode(stage, model="mock/mock-model", extra_args=["--thinking"])
    prompt = "--not-an-option ✓ THINK\n" + "x" * (1 << 20) + "\nRUN:echo hi | tee made.txt"
    events = await drain(runner.run(prompt))
    assert isinstance(events[0], StartedEvent)
    token = events[0].resume
    assert ends(events) == [
        ("note", "mock thought", True),
        ("note", "Running it.", True),
        ("command", "echo hi | tee made.txt", True),
    ]
    assert (events[-1].ok, events[-1].answer, events[-1].resume) == (True, "tool said: hi", token)
    assert prompt in model.prompts()  # all of it, unchanged
    assert (stage.project / "made.txt").read_text() == "hi\n"
    usage = events[-1].usage
    assert (usage["input_tokens"], usage["output_tokens"]) == (22, 14)

    first = asyncio.ensure_future(drain(runner.run("first GATE:a", token)))
    await model.prompted("first GATE:a", DEADLINE_S)
    second = asyncio.ensure_future(drain(opencode(stage).run("RUN:exit 3", token)))
    third = await drain(runner.run("meanwhile"))  # time enough for the second, if it did not wait
    assert third[-1].answer == "pong: meanwhile"
    assert not any("RUN:exit 3" in seen for seen in model.prompts())
    model.open_gate("a")
    assert (await first)[-1].answer == "pong: first GATE:a"
    failing = await second
    assert ends(failing)[-1] == ("command", "exit 3", False)
    assert (failing[-1].ok, failing[-1].resume) == (True, token)
    assert (await drain(runner.run("USERS?", token)))[-1].answer == "users=4"


async def test_a_model_that_fails(stage: EngineHome) -> None:
    refused = await drain(opencode(stage).run("HTTP:401"))
    assert [type(event).__name__ for event in refused] == ["StartedEvent", "CompletedEvent"]
    assert (refused[-1].ok, refused[-1].error) == (False, "mock error 401")
    assert refused[-1].resume == refused[0].resume
    circles, silent = await asyncio.gather(
        drain(opencode(stage).run("DROP")), drain(opencode(stage, idle=IDLE_S).run("HTTP:500"))
    )
    assert circles[-1].ok is False
    assert circles[-1].error.startswith("opencode goes round in circles")
    assert circles[-1].resume is not None
    assert any("HTTP:500" in prompt for prompt in stage.model.prompts())
    assert (silent[-1].ok, silent[-1].error) == (False, "opencode gave no sign of life for 45 s: stopped")


async def test_what_cannot_be_run(stage: EngineHome) -> None:
    token = ResumeToken("opencode", "ses_doesnotexist00000000000000")
    nowhere, unknown = opencode(stage).run("hi", token), opencode(stage, extra_args=["--no-such-option"]).run("hi")
    for run, words in ((nowhere, "Session not found"), (unknown, "--auto")):
        completed = (await drain(run))[-1]
        assert (completed.ok, completed.error) == (False, "opencode failed (rc=1).")
        assert words in run.stderr


async def test_cancel_in_the_middle_of_a_tool_leaves_nothing(stage: EngineHome) -> None:
    await check_cancel_in_a_tool(opencode(stage), stage)
