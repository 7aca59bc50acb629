"""The host's tools in real agent programs: each starts our MCP server, and its model calls a function of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from interop.host import test_engine_runtime
from interop.host.test_engine_runtime import PATIENT, items, once, turn
from interop.peers import installed
from interop.runners.driving import staged
from treadle.client import Tool
from treadle.host import EngineRuntime, Notice, Opening, TurnEnded
from treadle.runners import CodexRunner, Runner, TreadleRunner
from treadle.testing import EngineHome

pytestmark = [pytest.mark.interop, pytest.mark.anyio]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    with staged(tmp_path, monkeypatch) as stage:
        yield stage


def codex(stage: EngineHome) -> Runner:
    return CodexRunner(str(installed("codex")), cwd=stage.project, env=stage.env("codex"), timeouts=PATIENT)


def treadle(stage: EngineHome) -> Runner:
    return TreadleRunner(cwd=stage.project, env=stage.env("treadle"), timeouts=PATIENT)


# What the model of each calls a tool `add` of a server `treadle_host`.
ENGINES: Final[dict[str, tuple[Callable[[EngineHome], Runner], str]]] = {
    "claude": (test_engine_runtime.claude, "mcp__treadle_host__add"),
    "opencode": (test_engine_runtime.opencode, "treadle_host_add"),
    "codex": (codex, "mcp__treadle_host.add"),
    "treadle": (treadle, "mcp__treadle_host.add"),
}


async def test_rules_of_opencode_that_ask_are_for_its_other_tools(stage: EngineHome) -> None:
    called: list[int] = []

    def add(first: int, second: int) -> int:
        """Add two numbers."""
        called.append(first)
        return first + second

    settings = stage.project / "opencode.json"
    found = msgspec.json.decode(settings.read_bytes()) if settings.exists() else {}
    settings.write_bytes(msgspec.json.encode({**found, "permission": "ask"}))
    runtime = EngineRuntime(test_engine_runtime.opencode(stage))
    await runtime.open(Opening(tools=(Tool(add),)), once)
    await turn(runtime, 'CALL:treadle_host_add {"first": 1, "second": 3}')
    await turn(runtime, 'CALL:bash {"command": "touch made", "description": "make it"}')
    await runtime.close()
    assert called == [1]
    assert not (stage.project / "made").exists()


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_model_calls_a_function_of_the_host(engine: str, stage: EngineHome) -> None:
    called: list[tuple[int, int]] = []

    def add(first: int, second: int) -> int:
        """Add two numbers."""
        called.append((first, second))
        return first + second

    make, name = ENGINES[engine]
    runtime = EngineRuntime(make(stage))
    await runtime.open(Opening(tools=(Tool(add),)), once)
    for number in (1, 2):  # each turn is a process of its own
        events = await turn(runtime, f'CALL:{name} {{"first": {number}, "second": 3}}')
        assert events[-1] == TurnEnded("completed")
        assert items(events)[-1].text.startswith("tool said: ")
        assert str(number + 3) in items(events)[-1].text
        assert not [event for event in events if isinstance(event, Notice) and "host" in event.message]
    await runtime.close()
    assert called == [(1, 3), (2, 3)]
