"""The tool of CONTRIBUTING, added the way the recipe says: a module, and a line in `BUILT_IN`."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import msgspec
import pytest

from system.agent.order import check_thread
from system.agent.scene import Scene, scene
from treadle import Tool as ClientTool
from treadle.agent import Tool, ToolCall
from treadle.agent.tools import built_in
from treadle.client import tools_by_name
from treadle.errors import ArgumentError
from treadle.testing import ToolCall as ModelCall
from treadle.tools import function_spec, specs

pytestmark = [pytest.mark.anyio, pytest.mark.every_wire]
RECIPES = (Path(__file__).resolve().parents[3] / "CONTRIBUTING.md").read_text()


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the recipe."""
    (code,) = re.findall(r"^   ```python\n(   \"\"\"roll_dice.*?)^   ```", RECIPES, re.DOTALL | re.MULTILINE)
    (tmp_path / "roll_dice_tool.py").write_text(dedent(code))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("roll_dice_tool")
    del sys.modules["roll_dice_tool"]


def _line(monkeypatch: pytest.MonkeyPatch, *tools: Tool) -> None:
    """What the recipe writes into `BUILT_IN` and beside the names for clients, where somebody may have followed it."""
    added = {tool.name for tool in tools}
    others = (tool for tool in built_in.BUILT_IN if tool.name not in added)
    monkeypatch.setattr(built_in, "BUILT_IN", (*others, *tools))
    monkeypatch.setattr(specs, "_BUILT_IN_NAMES", specs.built_in_names() | added)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as made:
        yield made


async def _outputs(stage: Scene, *calls: ModelCall) -> dict[str, str]:
    """What the model got for these calls, in one turn."""
    stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    thread = await stage.start()
    assert (await stage.run(thread))["status"] == "completed"
    await check_thread(stage, thread)
    return dict(stage.model.requests()[-1].tool_outputs)


async def test_the_recipe(stage: Scene, recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    _line(monkeypatch, recipe.RollDice())
    outputs = await _outputs(
        stage, ModelCall("roll_dice", {"sides": 1}, "c1"), ModelCall("roll_dice", {"sides": 0}, "c2")
    )
    assert "roll_dice" in _told(stage)
    assert outputs["c1"] == "rolled 1"
    assert "$.sides" in outputs["c2"]
    (item,) = stage.completed("dynamicToolCall")
    assert (item["id"], item["tool"], item["arguments"], item["status"]) == (
        "c1",
        "roll_dice",
        {"sides": 1},
        "completed",
    )
    with pytest.raises(ArgumentError, match="`roll_dice` is a tool that the agent has already"):
        tools_by_name([ClientTool(lambda: None, name="roll_dice")])


async def test_without_its_line_it_is_not_there(stage: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_in, "BUILT_IN", tuple(tool for tool in built_in.BUILT_IN if tool.name != "roll_dice"))
    outputs = await _outputs(stage, ModelCall("roll_dice", {"sides": 1}, "c1"))
    assert "roll_dice" not in _told(stage)
    assert outputs["c1"] == "unsupported call: roll_dice"


def _told(stage: Scene) -> str:
    """All that the first request says of tools."""
    return msgspec.json.encode(stage.model.requests()[0].json["tools"]).decode()


class Meeting(Tool):
    """Notes how many of its calls were under way at once, when the model had written all of them."""

    name = "meet"
    spec = function_spec(name, "d", {})

    def __init__(self, *, exclusive: bool) -> None:
        self.exclusive = exclusive
        self.inside = self.most = self.over = 0

    async def run(self, call: ToolCall) -> str:
        self.inside += 1
        while len(call.turn.calls) + self.over < len(CALLS):
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # whoever may come in now, does
        self.most = max(self.most, self.inside)
        self.inside -= 1
        self.over += 1
        return "met"


CALLS = [ModelCall("meet", {}, f"c{number}") for number in range(3)]


@pytest.mark.parametrize(("exclusive", "most"), [(False, 3), (True, 1)])
async def test_exclusive_tools_run_alone(
    stage: Scene, monkeypatch: pytest.MonkeyPatch, exclusive: bool, most: int
) -> None:
    tool = Meeting(exclusive=exclusive)
    _line(monkeypatch, tool)
    assert await _outputs(stage, *CALLS) == {"c0": "met", "c1": "met", "c2": "met"}
    assert tool.most == most
