"""The real pi through our runner, on the mock model: what works, what fails, and what is left."""

from __future__ import annotations

import json
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
from treadle.runners import PiRunner, ResumeToken, RunOptions, StartedEvent, TextDelta, Timeouts
from treadle.testing import EngineHome

pytestmark = [pytest.mark.interop, pytest.mark.anyio]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    with staged(tmp_path, monkeypatch) as stage:
        settings = stage.home / ".pi/agent/settings.json"
        quick = {"enabled": True, "maxRetries": 2, "baseDelayMs": 1}
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "retry": quick}))
        yield stage


def pi(stage: EngineHome, **choices: Any) -> PiRunner:
    patient = Timeouts(linger=DEADLINE_S, grace=DEADLINE_S)  # no test here is about an end that does not come
    program = str(installed("pi"))
    return PiRunner(program, env=stage.env("pi"), **{"cwd": stage.project, "timeouts": patient, **choices})


async def test_an_answer_and_the_same_session_again(stage: EngineHome) -> None:
    runner = pi(stage, provider="mock", model="mock-model", effort="off")
    prompt = "--not-an-option ✓\n" + "x" * (1 << 20) + "\nlast line"
    first = await drain(runner.run(prompt))
    assert isinstance(first[0], StartedEvent)
    assert first[0].meta == {"session": first[0].resume.value, "cwd": str(stage.project)}
    assert "".join(event.text for event in first if isinstance(event, TextDelta)) == "pong: last line"
    assert (first[-1].ok, first[-1].answer) == (True, "pong: last line")
    assert stage.model.prompts() == [prompt]  # all of it, unchanged
    again = await drain(runner.run("USERS?", first[-1].resume))
    assert (again[-1].answer, again[-1].resume) == ("users=2", first[-1].resume)
    assert again[-1].usage == first[-1].usage  # of each run alone
    (file,) = (stage.home / ".pi/agent/sessions").glob("*/*.jsonl")
    by_file = ResumeToken("pi", str(file))
    third = await drain(runner.run("USERS?", by_file))
    assert (third[-1].answer, third[-1].resume) == ("users=3", by_file)


@pytest.mark.parametrize(("command", "ok"), [("echo hi | tee made.txt", True), ("exit 3", False)])
async def test_a_tool(stage: EngineHome, command: str, ok: bool) -> None:
    events = await drain(pi(stage).run(f"RUN:{command}"))
    assert ends(events)[-1] == ("command", command, ok)
    assert events[-1].ok
    assert events[-1].answer.startswith("tool said:")
    assert (stage.project / "made.txt").exists() == ok


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("HTTP:401", "401 mock error 401"),
        ("HTTP:500", "500 mock error 500"),
        ("CUT", "terminated"),
        ("DROP", "pi gave no answer: the model's stream ended before it said anything."),
        (" ", "pi ended without an answer: the model was asked nothing."),
    ],
)
async def test_a_model_that_fails(stage: EngineHome, prompt: str, error: str) -> None:
    events = await drain(pi(stage).run(prompt))
    completed = events[-1]
    assert (completed.ok, completed.answer, completed.error) == (False, "", error)
    assert completed.resume == events[0].resume
    notes = [(event.action.id, event.phase) for event in events[1:-1] if event.action.kind == "note"]
    retried = [("pi.retry", "started"), ("pi.retry", "updated"), ("pi.retry", "completed")]
    assert notes == (retried if prompt in ("HTTP:500", "CUT") else [])


async def test_a_model_that_fails_at_first(stage: EngineHome) -> None:
    events = await drain(pi(stage).run("FLAKY:3:pi"))  # a failure for pi is three for the model
    assert (events[-1].ok, events[-1].answer) == (True, "pong: FLAKY:3:pi")
    assert ends(events) == [("note", "the retry worked", True)]


async def test_what_cannot_be_run(stage: EngineHome) -> None:
    token = ResumeToken("pi", "00000000-0000-7000-8000-000000000000")
    nowhere, unknown = pi(stage).run("hi", token), pi(stage, extra_args=["--no-such-option"]).run("hi")
    for run, words in ((nowhere, "No session found"), (unknown, "--no-such-option")):
        completed = (await drain(run))[-1]
        assert (completed.ok, completed.error) == (False, "pi failed (rc=1).")
        assert words in run.stderr


async def test_a_session_of_another_folder(stage: EngineHome) -> None:
    token = (await drain(pi(stage).run("hello")))[-1].resume
    elsewhere = RunOptions(cwd=stage.home)
    completed = (await drain(pi(stage).run("go on", token, elsewhere)))[-1]
    assert completed.ok is False
    assert "only in the folder where the session began" in completed.error
    # pi takes the prompt for the answer to its question whether to copy the session here.
    forked = (await drain(pi(stage).run("y", token, elsewhere)))[-1]
    assert forked.ok is False
    assert forked.resume == token


async def test_cancel_in_the_middle_of_a_tool_leaves_nothing(stage: EngineHome) -> None:
    await check_cancel_in_a_tool(pi(stage), stage)


async def test_closing_in_the_middle_of_a_tool_leaves_nothing(stage: EngineHome) -> None:
    await check_closing_in_a_tool(pi(stage), stage)


async def test_two_at_once_in_one_session_are_both_remembered(stage: EngineHome) -> None:
    await check_two_at_once(lambda: pi(stage), stage)
