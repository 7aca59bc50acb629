"""The host's tools in an engine: it starts an MCP server, which is this process. The engine is a script here."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from host_stage import alive
from system.host.test_engine_runtime_processes import codex, home, opened, turn
from system.runners.fake_engine import fake
from treadle.client import Tool
from treadle.host import EngineRuntime, HostAgent, ItemCompleted, Notice, Opening, TurnEnded
from treadle.runners import CodexRunner, PiRunner

pytestmark = pytest.mark.anyio
__all__ = ["home"]

# Speaks to each server as `codex` is told of it, and answers with what came back.
CALLS = """
import tomllib
settings = "\\n".join(word for word in sys.argv if word.startswith("mcp_servers."))
(server,) = tomllib.loads(settings)["mcp_servers"].values()
bridge = subprocess.Popen(
    [server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
)
def send(**message):
    bridge.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
def ask(method, **params):
    send(id=1, method=method, params=params)
    return json.loads(bridge.stdout.readline())
"""
END = "bridge.stdin.close()\nbridge.wait()\nanswer(json.dumps(said))\ndone()"


def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


def fail() -> None:
    raise LookupError("nothing there")


def picture() -> bytes:
    return b"\x89PNG\r\n\x1a\n"


def _answer(events: list[Any]) -> str:
    item: Any = [event.item for event in events if isinstance(event, ItemCompleted)][-1]
    return str(item.text)


async def _said(tmp_path: Path, script: str, *functions: Callable[..., Any]) -> Any:
    """What the engine's own answer is."""
    runtime = codex(tmp_path, f"{CALLS}start()\n{script}\n{END}")
    async with opened(runtime, Opening(tools=tuple(map(Tool, functions)))):
        events = await turn(runtime)
    assert events[-1] == TurnEnded("completed")
    assert not [event for event in events if isinstance(event, Notice)]
    return json.loads(_answer(events))


async def test_tools_are_listed_and_called(tmp_path: Path) -> None:
    script = """
    said = [ask("initialize", protocolVersion="2025-06-18"), ask("tools/list")]
    send(method="notifications/initialized")
    said.append(ask("tools/call", name="add", arguments=dict(first=2, second=3)))
    said.append(ask("tools/call", name="add", arguments=dict(first=2)))
    said.append(ask("tools/call", name="fail"))
    said.append(ask("tools/call", name="picture", arguments={}))
    said.append(ask("tools/call", name="nothing", arguments={}))
    said.append(ask("resources/list"))
    """
    script = "\n".join(line.strip() for line in script.splitlines())
    hello, listed, added, wrong, failed, pictured, *refused = await _said(tmp_path, script, add, fail, picture)
    assert hello["result"]["protocolVersion"] == "2025-06-18"
    assert "tools" in hello["result"]["capabilities"]
    tools = {tool["name"]: tool for tool in listed["result"]["tools"]}
    assert list(tools) == ["add", "fail", "picture"]
    assert tools["add"]["description"] == "Add two numbers."
    assert tools["add"]["inputSchema"]["required"] == ["first", "second"]
    assert added["result"] == {"content": [{"type": "text", "text": "5"}]}
    assert wrong["result"]["isError"]
    assert "`second` is missing" in wrong["result"]["content"][0]["text"]
    assert failed["result"] == {"content": [{"type": "text", "text": "LookupError: nothing there"}], "isError": True}
    assert pictured["result"]["content"] == [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]
    assert [answer["error"]["code"] for answer in refused] == [-32602, -32601]


async def test_what_cannot_be_read_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    script = (
        'bridge.stdin.write("no json\\n[]\\n{}\\n")\n'
        'said = [json.loads(bridge.stdout.readline())["error"]["code"] for _ in range(3)]\n'
        'said.append(ask("ping")["result"])'
    )
    assert await _said(tmp_path, script, add) == [-32700, -32700, -32700, {}]


async def test_a_call_can_be_cancelled_and_others_go_on(tmp_path: Path) -> None:
    never = asyncio.Event()
    ended: list[str] = []

    async def wait() -> None:
        try:
            await never.wait()
        finally:
            ended.append("cancelled")

    script = (
        'send(id="w", method="tools/call", params=dict(name="wait", arguments={}))\n'
        'said = ask("tools/call", name="add", arguments=dict(first=1, second=1))["result"]["content"][0]["text"]\n'
        'send(method="notifications/cancelled", params=dict(requestId="w"))\n'
        'ask("ping")'
    )
    assert await _said(tmp_path, script, wait, add) == "2"
    assert ended == ["cancelled"]


async def test_the_socket_is_for_this_user_and_goes_with_the_run(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []

    def look(path: str) -> None:
        folder = os.path.dirname(path)
        seen.append((path, stat.S_IMODE(os.stat(folder).st_mode), stat.S_IMODE(os.stat(path).st_mode)))

    script = 'said = ask("tools/call", name="look", arguments=dict(path=server["args"][-1]))'
    await _said(tmp_path, script, look)
    ((path, folder_mode, socket_mode),) = seen
    assert (folder_mode, socket_mode) == (0o700, 0o600)
    assert not os.path.exists(os.path.dirname(path))


async def test_the_bridge_ends_with_the_host_and_a_plain_function_does_not_hold_it_up(tmp_path: Path) -> None:
    asked, free = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        free.wait()

    script = f"{CALLS}start()\nmark('bridge', str(bridge.pid))\nask('tools/call', name='hang', arguments={{}})"
    runtime = codex(tmp_path, script)
    async with opened(runtime, Opening(tools=(Tool(hang),))):
        await runtime.start_turn("hi", {})
        assert await asyncio.to_thread(asked.wait, 30)
    free.set()
    assert not alive(int((tmp_path / "bridge").read_text()))


async def test_a_call_has_a_time_limit(tmp_path: Path) -> None:
    never = asyncio.Event()
    runner = CodexRunner(
        fake(tmp_path, f"{CALLS}start()\nsaid = ask('tools/call', name='wait', arguments={{}})\n{END}"), cwd=tmp_path
    )
    runtime = EngineRuntime(runner, tool_timeout=0.05)
    async with opened(runtime, Opening(tools=(Tool(never.wait, name="wait"),))):
        events = await turn(runtime)
    assert "`wait` did not answer within 0.05 s" in _answer(events)


async def test_an_engine_without_mcp_says_so_once(tmp_path: Path) -> None:
    runtime = EngineRuntime(PiRunner(fake(tmp_path, "sys.exit(1)", "pi"), cwd=tmp_path))
    async with opened(runtime, Opening(tools=(Tool(add),))):
        notices = [event.message for event in await turn(runtime) if isinstance(event, Notice)]
        assert "pi knows no MCP servers, so it cannot be given the tools of the host (add)." in notices
        assert not [event for event in await turn(runtime) if isinstance(event, Notice) and "MCP" in event.message]


async def test_an_agent_has_its_tools_and_its_memory_in_an_engine(tmp_path: Path) -> None:
    script = (
        'names = [tool["name"] for tool in ask("tools/list")["result"]["tools"]]\n'
        'said = [names, ask("tools/call", name="add", arguments=dict(first=2, second=3))["result"]["content"]]'
    )
    program = fake(tmp_path, f"{CALLS}start()\n{script}\n{END}")

    def make() -> EngineRuntime:
        return EngineRuntime(CodexRunner(program, cwd=tmp_path))

    def talk() -> Any:
        with HostAgent(runtime=make, tools=[add], memory=True) as agent:
            return agent.run_conversation("hi")

    result = await asyncio.to_thread(talk)
    names, content = json.loads(result.final_response)
    assert names == ["memory", "add"]
    assert content == [{"type": "text", "text": "5"}]
    assert not [notice for notice in result.notices if "tools of the host" in notice]
