"""`ThreadTools` on a server in this process: what it keeps of threads between turns, and clients that mean no good."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from treadle.cli import ThreadTools, server_of
from treadle.client import CodexConfig, DirectChannel
from treadle.mcp import McpConnection
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.anyio
DEADLINE_S = 30.0


class Client:
    """An MCP client in this process."""

    def __init__(self, tools: ThreadTools) -> None:
        self.messages: list[Any] = []
        self._arrived = asyncio.Event()
        self.channel = DirectChannel(self._received)
        self.connection = McpConnection(self.channel, tools)
        self._number = 0

    def _received(self, frame: bytes) -> None:
        self.messages.append(json.loads(frame))
        self._arrived.set()

    def send(self, message: Mapping[str, Any]) -> None:
        self.channel.deliver(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def wait(self, wanted: Any) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            while not (found := [message for message in self.messages if wanted(message)]):
                self._arrived.clear()
                await self._arrived.wait()
        return found[0]

    def ask(self, method: str, **params: Any) -> int:
        self._number += 1
        self.send({"id": self._number, "method": method, "params": params})
        return self._number

    def call(self, tool: str, **arguments: Any) -> int:
        return self.ask("tools/call", name=tool, arguments=arguments)

    async def result(self, number: int) -> Any:
        return (await self.wait(lambda it: it.get("id") == number and "method" not in it))["result"]


@pytest.fixture
async def tools(harness: AppServerHarness) -> AsyncIterator[ThreadTools]:
    config = CodexConfig(env=dict(harness.environ()), cwd=str(harness.workspace), request_timeout=None)
    tools = ThreadTools(config, lambda: False)
    yield tools
    await tools.close()


@pytest.fixture
async def client(tools: ThreadTools) -> AsyncIterator[Client]:
    client = Client(tools)
    yield client
    client.connection.close()
    await client.connection.wait_closed()


async def unloaded(tools: ThreadTools) -> list[str]:
    """The threads that stay when all are unloaded that may be."""
    await server_of(tools.client).threads.unload_idle(time.monotonic())
    return list((await tools.client.thread_loaded_list()).data)


async def test_a_thread_is_released_between_its_turns(
    harness: AppServerHarness, tools: ThreadTools, client: Client
) -> None:
    for text in ("one", "two", "three"):
        harness.model.enqueue_assistant_message(text)
    first = await client.result(client.call("codex", prompt="hi", sandbox="read-only"))
    thread = first["structuredContent"]["threadId"]
    assert await unloaded(tools) == []
    for text in ("two", "three"):
        again = await client.result(client.call("codex-reply", threadId=thread, prompt="more"))
        assert again["structuredContent"] == {"threadId": thread, "content": text}
    assert await unloaded(tools) == []


async def test_a_thread_of_a_turn_that_runs_is_not_released(
    harness: AppServerHarness, tools: ThreadTools, client: Client
) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "sleep 60"})
    harness.model.enqueue_assistant_message("again")
    call = client.call("codex", prompt="hi", sandbox="danger-full-access")
    begun = await client.wait(lambda it: it.get("params", {}).get("msg", {}).get("type") == "exec_command_begin")
    thread = begun["params"]["_meta"]["threadId"]
    assert await unloaded(tools) == [thread]
    for _ in "twice":
        client.send({"method": "notifications/cancelled", "params": {"requestId": call}})
    again = await client.result(client.call("codex-reply", threadId=thread, prompt="more"))
    assert again["structuredContent"]["content"] == "again"
    assert await unloaded(tools) == []
    assert not [message for message in client.messages if message.get("id") == call]


async def test_an_answer_that_comes_with_the_end_of_its_call(
    harness: AppServerHarness, tools: ThreadTools, client: Client
) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "touch made"})
    info = {"name": "x", "version": "1"}
    await client.result(
        client.ask("initialize", protocolVersion="2025-06-18", capabilities={"elicitation": {}}, clientInfo=info)
    )
    call = client.call("codex", prompt="hi", **{"approval-policy": "untrusted"})
    asked = await client.wait(lambda it: it.get("method") == "elicitation/create")
    client.send({"method": "notifications/cancelled", "params": {"requestId": call}})
    client.send({"id": asked["id"], "result": {"action": "accept"}})  # before anything else has happened
    assert await client.result(client.ask("ping")) == {}
    assert not (harness.workspace / "made").exists()
