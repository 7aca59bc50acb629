"""The client of the harness: what happens to its requests when the connection ends, and to answers that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import RpcError
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.anyio
SLEEP = {"command": ["sleep", "60"]}


async def test_a_request_ends_with_the_server(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        async with asyncio.timeout(30), harness.connect() as client:
            waiting = asyncio.ensure_future(client.request("command/exec", SLEEP))
            await asyncio.sleep(0)
            await client.server.close()
            with pytest.raises(RpcError):
                await waiting


async def test_a_request_ends_with_the_connection(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        async with asyncio.timeout(30), harness.connect() as client:
            waiting = asyncio.ensure_future(client.request("command/exec", SLEEP))
            await asyncio.sleep(0)
            client.close()
            for request in (waiting, client.request("thread/list", {})):
                with pytest.raises(RpcError, match="the connection is closed"):
                    await request


async def test_an_answer_that_fails_costs_the_client_its_connection_and_nobody_else(tmp_path: Path) -> None:
    def fails(request: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError

    with AppServerHarness(tmp_path, settings={"approval_policy": "untrusted"}) as harness:
        harness.model.enqueue_function_call("exec_command", {"cmd": "touch made"}, call_id="c")
        harness.model.enqueue_assistant_message("done")
        async with asyncio.timeout(30), harness.server() as server, harness.connect(server=server) as other:
            async with harness.connect(server=server) as client:
                client.answer = fails
                thread = (await client.request("thread/start", {}))["thread"]["id"]
                await client.request("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "go"}]})
                await client.wait_for("item/commandExecution/requestApproval")
                with pytest.raises(RpcError, match="the connection is closed"):
                    await client.request("thread/list", {})
            assert await other.request("thread/list", {})
