"""Whole turns on a Chat Completions server, through the app-server and `treadle exec`."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chat_wire import check_body
from treadle.server import AppServer
from treadle.testing import EngineModel, HarnessClient

pytestmark = pytest.mark.anyio
DEADLINE = 60
Json = dict[str, Any]
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+made\n*** End Patch\n"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Stage:
    """A home that points to the model, and a place to work in."""

    def __init__(self, root: Path, model: EngineModel) -> None:
        self.home, self.workspace, self.model = root / "home", root / "workspace", model
        self.home.mkdir()
        self.workspace.mkdir()
        (self.home / "config.toml").write_text(
            f"""model = "some-model"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.local]
base_url = "{model.base_url}"
wire_api = "chat"
request_max_retries = 0
stream_max_retries = 2
"""
        )

    @asynccontextmanager
    async def client(self) -> AsyncIterator[HarnessClient]:
        """Of a server of its own: each time everything is loaded from disk."""
        async with asyncio.timeout(DEADLINE), AppServer(home=self.home, cwd=str(self.workspace)) as server:
            client = HarnessClient(server)
            await client.request("initialize", {"clientInfo": {"name": "test", "version": "1"}})
            yield client
            client.close()

    def bodies(self) -> list[Json]:
        """Every request so far, all of which follow the rules of the API."""
        found = [request.json for request in self.model.requests()]
        for body in found:
            check_body(body)
        assert {request.path for request in self.model.requests()} == {"/v1/chat/completions"}
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with EngineModel() as model:
        yield Stage(tmp_path, model)


async def start(client: HarnessClient) -> str:
    thread: str = (await client.request("thread/start", {}))["thread"]["id"]
    return thread


async def answer(client: HarnessClient, thread: str, text: str, **params: Any) -> str:
    """The last message of a whole turn."""
    done = (await client.run_turn(thread, text, **params))["turn"]
    assert done["status"] == "completed", done
    messages = [
        told["params"]["item"]["text"]
        for told in client.told("item/completed")
        if told["params"]["turnId"] == done["id"] and told["params"]["item"]["type"] == "agentMessage"
    ]
    return str(messages[-1])


async def test_text_and_usage(stage: Stage) -> None:
    async with stage.client() as client:
        thread = await start(client)
        assert await answer(client, thread, "hello") == "pong: hello"
        deltas = client.told("item/agentMessage/delta")
        assert "".join(delta["params"]["delta"] for delta in deltas) == "pong: hello"
        usage = (await client.wait_for("thread/tokenUsage/updated"))["params"]["tokenUsage"]["last"]
        assert (usage["inputTokens"], usage["cachedInputTokens"], usage["outputTokens"]) == (11, 3, 7)
    (body,) = stage.bodies()
    assert body["messages"][0]["role"] == "system"
    assert body["messages"][-1] == {"role": "user", "content": "hello"}


async def test_a_thought_is_shown_and_not_sent_back(stage: Stage) -> None:
    async with stage.client() as client:
        thread = await start(client)
        await answer(client, thread, "THINK hard")
        thought = await client.wait_for("item/completed", lambda params: params["item"]["type"] == "reasoning")
        assert thought["params"]["item"]["content"] == ["mock thought"]
        await answer(client, thread, "and now")
    assert "mock thought" not in json.dumps(stage.bodies())


async def test_a_tool(stage: Stage) -> None:
    async with stage.client() as client:
        thread = await start(client)
        assert "hi from the shell" in await answer(client, thread, "RUN:echo hi from the shell")
        await answer(client, thread, "thanks")
    first, second, third = (body["messages"] for body in stage.bodies())
    assert [message["role"] for message in second[len(first) :]] == ["assistant", "tool"]
    assert second[len(first)]["content"] == "Running it."
    assert third[: len(second)] == second, "what was said once stays as it is, so that a cache of prefixes fits"


async def test_a_patch(stage: Stage) -> None:
    async with stage.client() as client:
        thread = await start(client)
        await answer(client, thread, "CALL:apply_patch " + json.dumps({"input": PATCH}))
        changed = await client.wait_for("item/completed", lambda params: params["item"]["type"] == "fileChange")
        assert changed["params"]["item"]["status"] == "completed"
    assert (stage.workspace / "new.txt").read_text() == "made\n"
    stage.bodies()


async def test_a_patch_as_free_text(stage: Stage) -> None:
    """gpt-5 models know patches as free text; here that is a function with one string."""
    async with stage.client() as client:
        thread = (await client.request("thread/start", {"model": "gpt-5.5"}))["thread"]["id"]
        await answer(client, thread, "CALL:apply_patch " + json.dumps({"input": PATCH}))
    assert (stage.workspace / "new.txt").read_text() == "made\n"
    last = stage.bodies()[-1]["messages"]
    tools = {tool["function"]["name"]: tool["function"] for tool in stage.bodies()[0]["tools"]}
    assert "lark grammar" in tools["apply_patch"]["description"]
    (called,) = [message for message in last if message.get("tool_calls")]
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"input": PATCH}


async def test_a_schema(stage: Stage) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    async with stage.client() as client:
        await answer(client, await start(client), "hello", outputSchema=schema)
    assert stage.bodies()[0]["response_format"]["json_schema"]["schema"] == schema


async def test_images_of_the_user_and_of_a_tool(stage: Stage) -> None:
    picture = stage.workspace / "pixel.png"
    picture.write_bytes(PIXEL)
    async with stage.client() as client:
        thread = await start(client)
        given = [{"type": "text", "text": "look"}, {"type": "localImage", "path": str(picture)}]
        turn = (await client.request("turn/start", {"threadId": thread, "input": given}))["turn"]
        await client.turn_end(turn["id"])
        await answer(client, thread, "CALL:view_image " + json.dumps({"path": "pixel.png"}))
    first, _, last = (body["messages"] for body in stage.bodies())
    shown = [part for part in first[-1]["content"] if part["type"] == "image_url"]
    assert shown[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert [message["role"] for message in last[-3:]] == ["assistant", "tool", "user"]
    assert last[-1]["content"][1]["image_url"] == shown[0]["image_url"]


async def test_a_thread_goes_on_in_another_process(stage: Stage) -> None:
    async with stage.client() as client:
        thread = await start(client)
        await answer(client, thread, "RUN:echo first")
    async with stage.client() as client:
        await client.request("thread/resume", {"threadId": thread})
        await answer(client, thread, "hello again")
    *_, before, after = (body["messages"] for body in stage.bodies())
    assert after[: len(before)] == before


async def test_a_response_that_breaks_off_is_asked_for_again_and_given_up_in_the_end(stage: Stage) -> None:
    async with stage.client() as client:
        done = (await client.run_turn(await start(client), "CUT"))["turn"]
    assert done["status"] == "failed"
    assert "disconnected before completion" in done["error"]["message"]
    assert len(stage.bodies()) == 3


def test_exec(stage: Stage) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "treadle", "exec", "--skip-git-repo-check", "RUN:echo hi > made.txt; cat made.txt"],
        cwd=stage.workspace,
        env={**os.environ, "TREADLE_HOME": str(stage.home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "tool said:" in done.stdout
    assert (stage.workspace / "made.txt").read_text() == "hi\n"
    stage.bodies()
