"""Our `CodexRunner` drives the real codex and `treadle exec`, which takes its place: the same events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pytest

from interop.programs import ROOT
from treadle.runners.codex import CodexRunner
from treadle.runners.events import ActionEvent, CompletedEvent, Event, ResumeToken, StartedEvent
from treadle.testing import AppServerHarness, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

USAGE: Final = Usage(input_tokens=11, cached_input_tokens=3, output_tokens=7)
NOBODY: Final = ResumeToken("codex", "00000000-0000-7000-8000-000000000000")
Stop: TypeAlias = Callable[[Event], bool]


class Side:
    """One of the two programs, with a home and a model of its own."""

    def __init__(self, program: Path, harness: AppServerHarness) -> None:
        self.model = harness.model
        self._folder = str(harness.workspace.parent)
        home = str(harness.home)
        env = {"HOME": home, "CODEX_HOME": home, "TREADLE_HOME": home, "PYTHONPATH": str(ROOT / "src")}
        self._runner = CodexRunner(
            codex_cmd=str(program),
            extra_args=["-c", 'model_reasoning_effort="low"'],
            env=env,
            cwd=str(harness.workspace),
            model="gpt-5.5",
        )

    async def run(self, prompt: str, resume: ResumeToken | None = None, stop: Stop = lambda _: False) -> list[Event]:
        events: list[Event] = []
        async with aclosing(self._runner.run(prompt, resume)) as run:
            async for event in run:
                events.append(event)
                if stop(event):
                    break
        return events

    def normal(self, events: list[Event]) -> list[Any]:
        """Without what differs from run to run."""
        text = msgspec.json.encode(events).decode().replace(self._folder, "$ROOT")
        for event in events:
            if isinstance(event, StartedEvent):
                text = text.replace(event.resume.value, "$THREAD")
        return [(type(event).__name__, value) for event, value in zip(events, msgspec.json.decode(text), strict=True)]


Sides: TypeAlias = list[Side]


@pytest.fixture
def sides(tmp_path: Path, codex_bin: Path) -> Any:
    with AppServerHarness(tmp_path / "treadle") as ours, AppServerHarness(tmp_path / "codex") as real:
        yield [Side(Path(sys.executable).with_name("treadle"), ours), Side(codex_bin, real)]


async def same(sides: Sides, run: Callable[[Side], Any]) -> list[Event]:
    ours, real = [await run(side) for side in sides]
    assert sides[0].normal(ours) == sides[1].normal(real)
    events: list[Event] = ours
    return events


def ended(events: list[Event]) -> CompletedEvent:
    assert isinstance(events[-1], CompletedEvent)
    return events[-1]


async def test_a_command_and_going_on(sides: Sides) -> None:
    tokens: dict[Side, ResumeToken | None] = {}

    async def first(side: Side) -> list[Event]:
        side.model.enqueue_function_call("exec_command", {"cmd": "echo out; exit 2"}, usage=USAGE)
        side.model.enqueue_assistant_message("done", usage=USAGE)
        events = await side.run("go")
        tokens[side] = ended(events).resume
        return events

    async def second(side: Side) -> list[Event]:
        side.model.enqueue_assistant_message("again", usage=USAGE)
        return await side.run("more", tokens[side])

    begun = await same(sides, first)
    assert ended(begun).answer == "done"
    assert [event.ok for event in begun if isinstance(event, ActionEvent) and event.phase == "completed"] == [False]
    resumed = ended(await same(sides, second))
    assert (resumed.answer, (resumed.usage or {})["input_tokens"]) == ("again", 11)  # of this run


async def test_a_patch(sides: Sides) -> None:
    async def run(side: Side) -> list[Event]:
        side.model.enqueue_custom_call("apply_patch", "*** Begin Patch\n*** Add File: a.txt\n+one\n*** End Patch\n")
        side.model.enqueue_assistant_message("done")
        return await side.run("go")

    kinds = [event.action.kind for event in await same(sides, run) if isinstance(event, ActionEvent)]
    assert "file_change" in kinds


async def test_a_failure_and_an_unknown_session(sides: Sides) -> None:
    async def fail(side: Side) -> list[Event]:
        side.model.enqueue_error(400, "mock error")
        return await side.run("go")

    assert ended(await same(sides, fail)).error == "mock error"
    unknown = ended(await same(sides, lambda side: side.run("go", NOBODY)))
    assert (unknown.ok, unknown.error) == (False, "codex exec failed (rc=1).")


async def test_a_run_that_is_left_in_the_middle_of_a_command(sides: Sides) -> None:
    """And its session can be gone on with."""

    def is_command(event: Event) -> bool:
        return isinstance(event, ActionEvent) and event.action.kind == "command"

    async def run(side: Side) -> list[Event]:
        side.model.enqueue_function_call("exec_command", {"cmd": "sleep 1000"})
        left = await side.run("go", stop=is_command)
        assert isinstance(left[0], StartedEvent)
        side.model.enqueue_assistant_message("back")
        *back, last = await side.run("again", left[0].resume)
        # What the run before it had used is kept by ours, and lost by the real one.
        return [*left, *back, msgspec.structs.replace(last, usage=None)]

    assert ended(await same(sides, run)).answer == "back"
