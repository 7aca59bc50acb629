"""What the tests of our runners on real agent programs have in common: the stage, and waiting with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from treadle.runners import ActionEvent, Event, ResumeToken, Runner, process_start_time
from treadle.testing import EngineHome, EngineModel

# At the load of a whole test suite a program takes many times as long as alone.
DEADLINE_S: Final = 110.0


@contextmanager
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    """A model and a home; what we remember of sessions is there too."""
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "treadle"))
    with EngineModel() as model:
        yield EngineHome(tmp_path / "stage", model)


async def drain(run: AsyncIterator[Event]) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in run]


async def appears(path: Path) -> str:
    async with asyncio.timeout(DEADLINE_S):
        while not (path.exists() and path.read_text()):
            await asyncio.sleep(0.02)
    return path.read_text()


def ends(events: list[Any]) -> list[tuple[str, str, bool | None]]:
    """What was done: kind, title and success of each action that has ended."""
    actions = [event for event in events if isinstance(event, ActionEvent) and event.phase == "completed"]
    return [(event.action.kind, event.action.title, event.ok) for event in actions]


# --- what holds for every engine -------------------------------------------------------------------------------------

STAYS: Final = "RUN:echo $$ > pid.txt; exec sleep 1000"


async def check_cancel_in_a_tool(runner: Runner, stage: EngineHome) -> list[Any]:
    """It leaves no process, and the session can go on; the events."""
    run = runner.run(STAYS)
    ended = asyncio.ensure_future(drain(run))
    pid = int(await appears(stage.project / "pid.txt"))
    assert process_start_time(pid)
    run.cancel()
    events = await ended
    assert not process_start_time(pid)
    assert (events[-1].ok, events[-1].error) == (False, "cancelled")
    assert (await drain(runner.run("USERS?", events[-1].resume)))[-1].ok
    return events


async def check_closing_in_a_tool(runner: Runner, stage: EngineHome) -> None:
    """It leaves no process."""
    run = runner.run(STAYS)
    async with asyncio.timeout(DEADLINE_S):
        async for event in run:
            if isinstance(event, ActionEvent) and event.action.kind == "command":
                break
    pid = int(await appears(stage.project / "pid.txt"))
    await run.aclose()
    assert not process_start_time(pid)


async def check_two_at_once(make: Callable[[], Runner], stage: EngineHome) -> None:
    """Of two runners, the second in a session waits for the first, and both are remembered."""
    model = stage.model
    token: ResumeToken = (await drain(make().run("hello")))[-1].resume
    first = asyncio.ensure_future(drain(make().run("first GATE:a", token)))
    await model.prompted("first GATE:a", DEADLINE_S)
    second = asyncio.ensure_future(drain(make().run("second", token)))
    third = await drain(make().run("meanwhile, elsewhere"))  # time enough for the second, if it did not wait
    assert third[-1].ok
    assert not any("second" in prompt for prompt in model.prompts())
    model.open_gate("a")
    assert [(await run)[-1].answer for run in (first, second)] == ["pong: first GATE:a", "pong: second"]
    assert (await drain(make().run("USERS?", token)))[-1].answer == "users=4"
