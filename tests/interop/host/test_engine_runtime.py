"""Real agent programs as the runtime of a session: two turns of one conversation, on a mock model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from interop.peers import installed
from interop.runners.driving import DEADLINE_S, staged
from treadle.host import (
    Ask,
    Choice,
    EngineRuntime,
    ItemCompleted,
    Opening,
    RuntimeEvent,
    ThreadNamed,
    TurnEnded,
    UsageReported,
)
from treadle.runners import ClaudeRunner, OpenCodeRunner, PiRunner, Runner, Timeouts
from treadle.testing import EngineHome

pytestmark = [pytest.mark.interop, pytest.mark.anyio]

PATIENT: Final = Timeouts(linger=DEADLINE_S, grace=DEADLINE_S)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    with staged(tmp_path, monkeypatch) as stage:
        yield stage


def claude(stage: EngineHome) -> Runner:
    return ClaudeRunner(str(installed("claude")), cwd=stage.project, env=stage.env("claude"), timeouts=PATIENT)


def opencode(stage: EngineHome) -> Runner:
    return OpenCodeRunner(str(installed("opencode")), cwd=stage.project, env=stage.env("opencode"), timeouts=PATIENT)


def pi(stage: EngineHome) -> Runner:
    return PiRunner(str(installed("pi")), cwd=stage.project, env=stage.env("pi"), timeouts=PATIENT)


ENGINES: Final[dict[str, Callable[[EngineHome], Runner]]] = {"claude": claude, "opencode": opencode, "pi": pi}


async def once(ask: Ask) -> Choice:
    return "once"


async def turn(runtime: EngineRuntime, prompt: str) -> list[RuntimeEvent]:
    events: list[RuntimeEvent] = []
    async with asyncio.timeout(DEADLINE_S):
        await runtime.start_turn(prompt, {})
        while not events or not isinstance(events[-1], TurnEnded):
            events.append(await runtime.next_event())
    return events


def items(events: list[RuntimeEvent]) -> list[Any]:
    return [event.item for event in events if isinstance(event, ItemCompleted)]


@pytest.mark.parametrize("engine", ENGINES)
async def test_two_turns_and_the_session_again(engine: str, stage: EngineHome) -> None:
    runtime = EngineRuntime(ENGINES[engine](stage))
    opened = await runtime.open(Opening(instructions="You are a test."), once)
    first = await turn(runtime, "RUN:echo hi | tee made.txt")
    assert first[-1] == TurnEnded("completed")
    assert (stage.project / "made.txt").read_text() == "hi\n"
    (command,) = [item for item in items(first) if item.type == "commandExecution"]
    assert (command.command, command.status) == ("echo hi | tee made.txt", "completed")
    answer = items(first)[-1]
    assert (answer.type, answer.phase) == ("agentMessage", "final_answer")
    assert answer.text.startswith("tool said: hi")
    assert any("You are a test." in prompt for prompt in stage.model.prompts())
    second = await turn(runtime, "USERS?")
    assert items(second)[-1].text == "users=2"
    totals = [event.total.total_tokens for event in first + second if isinstance(event, UsageReported)]
    assert totals == sorted(set(totals))
    await runtime.close()

    named = {event.thread_id for event in first + second if isinstance(event, ThreadNamed)}
    assert len(named) == 1
    assert opened.thread_id not in named
    again = EngineRuntime(ENGINES[engine](stage))
    await again.open(Opening(resume=named.pop(), instructions="You are a test."), once)
    assert items(await turn(again, "USERS?"))[-1].text == "users=3"
    await again.close()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_login_that_is_not_accepted(engine: str, stage: EngineHome) -> None:
    runtime = EngineRuntime(ENGINES[engine](stage))
    await runtime.open(Opening(), once)
    end = (await turn(runtime, "HTTP:401"))[-1]
    await runtime.close()
    assert isinstance(end, TurnEnded)
    assert end.fault is not None
    assert (end.status, end.fault.kind) == ("failed", "auth")
    assert engine in end.fault.advice
