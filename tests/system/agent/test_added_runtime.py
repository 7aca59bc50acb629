"""The recipe of CONTRIBUTING for another runtime, followed: a provider whose turns are not run by our loop."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from treadle.agent.turn_runtime import RUNTIMES
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.anyio
CONTRIBUTING = Path(__file__).parents[3] / "CONTRIBUTING.md"


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    section = text[text.index("### Add a runtime") :]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    line = re.search(r'`"(\w+)": "([\w.]+):(\w+)",`', section)
    assert found is not None
    assert line is not None
    module = types.ModuleType(line[2])
    exec(re.sub(r"(?m)^   ", "", found[1]), module.__dict__)
    monkeypatch.setitem(sys.modules, line[2], module)
    monkeypatch.setitem(RUNTIMES, line[1], f"{line[2]}:{line[3]}")


@pytest.mark.usefixtures("echo")
async def test_the_recipe(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {"modelProvider": "echo"}))["thread"]["id"]
            done = await client.run_turn(thread, "hello?")
            assert done["turn"]["status"] == "completed"
            read = await client.request("thread/read", {"threadId": thread, "includeTurns": True})
            (turn,) = read["thread"]["turns"]
            assert [item["type"] for item in turn["items"]] == ["userMessage", "agentMessage"]
            assert turn["items"][1]["text"] == "I heard you."
        assert harness.model.requests() == [], "no model was asked"


async def test_what_is_no_provider_and_no_runtime_is_refused(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        async with harness.connect() as client:
            with pytest.raises(Exception, match="model provider `echo` not found"):
                await client.request("thread/start", {"modelProvider": "echo"})
