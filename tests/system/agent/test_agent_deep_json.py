"""JSON that is nested deeper than anything reasonable, wherever it can come in: refused in words, and all goes on."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from system.agent.scene import Json, Scene, scene
from treadle.errors import RpcError
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio

DEPTHS = (129, 300, 900)
SAYS = "nested more than 128 levels deep"
TOOL = {"type": "function", "name": "weather", "description": "", "inputSchema": {"type": "object"}}


def deep(depth: int, kind: str = "object") -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind == "object" else [value]
    return value


async def goes_on(stage: Scene, thread: str, **params: Any) -> None:
    stage.model.enqueue_assistant_message("Still here.")
    assert (await stage.run(thread, **params))["status"] == "completed"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", ["object", "array"])
async def test_params(tmp_path: Path, depth: int, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    value = deep(depth, kind)
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        said = [{"type": "text", "text": "hi"}]
        for method, params in (
            ("thread/start", {"config": {"x": value}}),
            ("thread/start", {"dynamicTools": [{**TOOL, "inputSchema": value}]}),
            ("thread/resume", {"threadId": thread, "config": {"x": value}}),
            ("thread/fork", {"threadId": thread, "config": {"x": value}}),
            ("turn/start", {"threadId": thread, "input": said, "outputSchema": value}),
            ("thread/inject_items", {"threadId": thread, "items": [{"type": "message", "content": value}]}),
            ("config/value/write", {"keyPath": "x", "value": value, "mergeStrategy": "replace"}),
        ):
            with pytest.raises(RpcError, match=SAYS) as refused:
                await stage.client.request(method, params)
            assert refused.value.code == -32600
        await goes_on(stage, thread)
    assert "failed" not in caplog.text


async def test_as_deep_as_it_may_be(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(config={"x": deep(120)})
        await goes_on(stage, thread, outputSchema=deep(120))


@pytest.mark.parametrize("key", [".".join("a" * 129), ".".join("a" * 2_000)])
async def test_keys_with_many_parts(tmp_path: Path, key: str) -> None:
    async with scene(tmp_path) as stage:
        for method, params in (
            ("thread/start", {"config": {key: 1}}),
            ("config/value/write", {"keyPath": key, "value": 1, "mergeStrategy": "replace"}),
        ):
            with pytest.raises(RpcError, match="more than 128 parts") as refused:
                await stage.client.request(method, params)
            assert refused.value.code == -32600
        await goes_on(stage, await stage.start())


@pytest.mark.parametrize("depth", DEPTHS)
async def test_arguments_of_a_call(tmp_path: Path, depth: int) -> None:
    text = f'{{"cmd": "true", "city": {msgspec.json.encode(deep(depth)).decode()}}}'
    async with scene(tmp_path) as stage:
        names = ("exec_command", "update_plan", "weather", "view_image", "no_such_tool")
        stage.model.enqueue_calls(*(ToolCall(name, text, name) for name in names))
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start(dynamicTools=[TOOL])
        assert (await stage.run(thread))["status"] == "completed"
        outputs = stage.model.requests()[-1].tool_outputs
        for name in names[:-1]:
            assert SAYS in outputs[name], name
        assert "no_such_tool" in outputs["no_such_tool"]
        await goes_on(stage, thread)


@pytest.mark.parametrize("depth", DEPTHS)
async def test_what_the_model_streams(tmp_path: Path, depth: int) -> None:
    """Items and members that nobody knows are passed over, however they look inside."""
    strange = {"type": "stranger", "id": "s", "inside": deep(depth)}
    call = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"x": deep(depth)}}
    async with scene(tmp_path) as stage:
        events: list[Json] = [
            {"type": "response.created", "response": {"id": "r", "x": deep(depth)}},
            {"type": "response.stranger", "inside": deep(depth)},
            *({"type": "response.output_item.done", "item": item} for item in (strange, call)),
            {"type": "response.completed", "response": {"id": "r", "x": deep(depth)}},
        ]
        stage.model.enqueue_sse([f"data: {_text(event)}\n\n".encode() for event in events])
        thread = await stage.start()
        turn = await stage.run(thread)
        assert turn["status"] in ("completed", "failed")
        assert "internal error" not in json.dumps(turn["error"])
        assert "RecursionError" not in json.dumps(turn["error"])
        await goes_on(stage, thread)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@pytest.mark.parametrize("depth", DEPTHS)
async def test_the_answer_of_a_client(tmp_path: Path, depth: int) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("weather", {}, call_id="c1")
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start(dynamicTools=[TOOL])
        turn = await stage.begin(thread)
        ask = await stage.asked("item/tool/call")
        stage.client.reply(ask, {"contentItems": [], "success": True, "more": deep(depth)})
        assert (await stage.end(turn))["status"] == "completed"
        (item,) = stage.completed("dynamicToolCall")
        assert item["status"] == "failed"
        await goes_on(stage, thread)


@pytest.mark.parametrize("override", ["x=" + "[" * 200 + "]" * 200, "x=" + "[" * 900, ".".join("a" * 900) + "=1"])
async def test_on_the_command_line(tmp_path: Path, override: str) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "treadle", "app-server", "-c", override),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(tmp_path), "TREADLE_HOME": str(tmp_path)},
    )
    hello = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "t", "version": "1"}}}
    out, err = await asyncio.wait_for(program.communicate(json.dumps(hello).encode() + b"\n"), 60)
    assert b"RecursionError" not in out + err
    assert b"Traceback" not in out + err
    assert b"128" in out + err
