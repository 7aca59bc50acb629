"""MCP servers that the SDK gives a thread, its approval handler and its events: on our server and the real codex."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.peers import installed
from kit import mcp_probe
from treadle import ApprovalRequest, Codex, CodexConfig, Sandbox
from treadle.own_python import treadle_command
from treadle.testing import EngineHome, EngineModel, EngineName
from treadle.types import ToolCall, ToolCallStarted

pytestmark = pytest.mark.interop

PROBE = {"probe": {"command": sys.executable, "args": ["-I", "-S", mcp_probe.__file__]}}
PROGRAMS: dict[EngineName, Callable[[], list[str]]] = {
    "codex": lambda: [str(installed("codex"))],
    "treadle": treadle_command,
}


@pytest.mark.parametrize("engine", PROGRAMS)
@pytest.mark.parametrize("allowed", [True, False], ids=["yes", "no"])
def test_a_tool_is_asked_for_and_shown(tmp_path: Path, engine: EngineName, allowed: bool) -> None:
    asked: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> bool:
        asked.append(request)
        return allowed

    with EngineModel() as model:
        stage = EngineHome(tmp_path / "stage", model)
        command = (*PROGRAMS[engine](), "app-server")
        config = CodexConfig(launch_args_override=command, env=stage.env(engine), cwd=str(stage.project))
        with Codex(config, approval_handler=decide) as codex:
            thread = codex.thread_start(mcp_servers=PROBE, sandbox=Sandbox.workspace_write)
            prompt = 'CALL:mcp__probe.write_it {"text": "x"}'
            events = list(thread.events(prompt))
    (request,) = asked
    assert (request.kind, request.server, request.tool) == ("tool", "probe", "write_it")
    assert request.arguments == {"text": "x"}
    (started,) = [event for event in events if isinstance(event, ToolCallStarted)]
    (ended,) = [event for event in events if isinstance(event, ToolCall)]
    assert (started.server, started.tool, started.item_id) == ("probe", "write_it", ended.item_id)
    if allowed:
        assert (ended.status, ended.output, ended.error) == ("completed", "written", None)
    else:
        assert (ended.status, ended.output, ended.error) == ("failed", "", "user rejected MCP tool call")
