"""Turns with a model behind the Messages API: what the agent asks it, and what becomes of its answers."""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anthropic_rules import check_rules
from model_server import Reply, chunked, model_server, sse
from system.agent.scene import Json, Scene, patch, said, scene
from treadle.testing import EngineHome, EngineModel

pytestmark = pytest.mark.anyio
MODEL = "claude-opus-4-6"


@pytest.fixture
def engine() -> Iterator[EngineModel]:
    """Every request that it got kept the rules."""
    with EngineModel() as model:
        yield model
        for request in model.requests():
            assert request.path == "/v1/messages"
            assert request.header("anthropic-version") == "2023-06-01"
            check_rules(request.json)


@asynccontextmanager
async def stage_on(tmp_path: Path, base_url: str) -> AsyncIterator[Scene]:
    provider = f'[model_providers.claude]\nwire_api = "anthropic"\nbase_url = "{base_url}"\nrequest_max_retries = 0\n'
    settings = {"model": MODEL, "model_provider": "claude", "sandbox_mode": "danger-full-access"}
    async with scene(tmp_path, settings=settings, extra_toml=provider) as stage:
        yield stage


def bodies(engine: EngineModel) -> list[Json]:
    return [request.json for request in engine.requests()]


def kinds(message: Json) -> list[str]:
    return [block["type"] for block in message["content"]]


async def test_a_text_and_what_it_used(tmp_path: Path, engine: EngineModel) -> None:
    async with stage_on(tmp_path, engine.base_url) as stage:
        thread = await stage.start()
        assert (await stage.run(thread, "hello"))["status"] == "completed"
        assert stage.completed("agentMessage")[-1]["text"] == "pong: hello"
        assert (await stage.run(thread, "USERS?"))["status"] == "completed"
        assert stage.completed("agentMessage")[-1]["text"] == "users=2"
        (first, second) = stage.client.told("thread/tokenUsage/updated")
        last = first["params"]["tokenUsage"]["last"]
        assert (last["inputTokens"], last["cachedInputTokens"], last["outputTokens"]) == (14, 3, 7)
        assert second["params"]["tokenUsage"]["total"]["inputTokens"] == 28


async def test_the_second_request_begins_as_the_first_did(tmp_path: Path, engine: EngineModel) -> None:
    """So that it is read from the cache: the same tools, orders and messages up to the mark of the first."""
    async with stage_on(tmp_path, engine.base_url) as stage:
        thread = await stage.start()
        await stage.run(thread, "RUN:echo one")
        await stage.run(thread, "again")
    first, second, third = bodies(engine)
    for before, after in ((first, second), (second, third)):
        assert after["tools"] == before["tools"]
        assert after["system"] == before["system"]
        count = len(before["messages"])
        assert [message["role"] for message in after["messages"]][:count] == [m["role"] for m in before["messages"]]
        assert "cache_control" in before["messages"][-1]["content"][-1]
        assert after["messages"][count - 1]["content"] == before["messages"][-1]["content"]  # and still marked


async def test_a_thought_comes_back_with_its_call_and_after_a_restart(tmp_path: Path, engine: EngineModel) -> None:
    async with stage_on(tmp_path, engine.base_url) as stage:
        thread = await stage.start()
        assert (await stage.run(thread, "THINK RUN:echo hi"))["status"] == "completed"
        (thought,) = stage.completed("reasoning")
        assert thought["summary"] == ["mock thought"]
        (command,) = stage.completed("commandExecution")
        assert (command["exitCode"], command["aggregatedOutput"]) == (0, "hi\n")
        deltas = stage.client.told("item/reasoning/summaryTextDelta")
        assert "".join(delta["params"]["delta"] for delta in deltas) == "mock thought"
    async with stage_on(tmp_path, engine.base_url) as stage:
        await stage.client.request("thread/resume", {"threadId": thread})
        assert (await stage.run(thread, "more"))["status"] == "completed"
    _, second, third = bodies(engine)
    for body in (second, third):
        assert kinds(body["messages"][1]) == ["thinking", "text", "tool_use"]
        assert body["messages"][1]["content"][0] == {
            "type": "thinking",
            "thinking": "mock thought",
            "signature": "c2ln",
        }
        assert kinds(body["messages"][2]) == ["tool_result"]
    assert second["thinking"]["type"] == "adaptive"


async def test_another_model_does_not_get_the_thoughts(tmp_path: Path, engine: EngineModel) -> None:
    async with stage_on(tmp_path, engine.base_url) as stage:
        thread = await stage.start()
        await stage.run(thread, "THINK RUN:echo hi")
        await stage.run(thread, "more", model="claude-opus-4-7")
    assert kinds(bodies(engine)[-1]["messages"][1]) == ["text", "tool_use"]


async def test_a_patch(tmp_path: Path, engine: EngineModel) -> None:
    given = json.dumps({"input": patch("*** Add File: new.txt", "+hello")})
    async with stage_on(tmp_path, engine.base_url) as stage:
        thread = await stage.start(cwd=str(stage.workspace))
        assert (await stage.run(thread, f"CALL:apply_patch {given}"))["status"] == "completed"
        assert (stage.workspace / "new.txt").read_text() == "hello\n"
        (change,) = stage.completed("fileChange")
        assert change["status"] == "completed"


async def test_images_of_the_user_and_of_a_tool(tmp_path: Path, engine: EngineModel) -> None:
    async with stage_on(tmp_path, engine.base_url) as stage:
        (stage.workspace / "dot.png").write_bytes(_png())
        thread = await stage.start(cwd=str(stage.workspace))
        url = "data:image/png;base64," + base64.b64encode(_png()).decode()
        turn = await stage.client.request(
            "turn/start",
            {
                "threadId": thread,
                "input": [{"type": "image", "url": url}, *said('CALL:view_image {"path": "dot.png"}')],
            },
        )
        assert (await stage.end(turn["turn"]["id"]))["status"] == "completed"
    _, second = bodies(engine)
    assert kinds(second["messages"][0]) == ["image", "text"]
    (result,) = second["messages"][2]["content"]
    assert "image" in [block["type"] for block in result["content"]]


async def test_a_compaction_is_asked_for_without_tools_and_gone_on_from(tmp_path: Path, engine: EngineModel) -> None:
    async with stage_on(tmp_path, engine.base_url) as stage:
        thread = await stage.start()
        await stage.run(thread, "RUN:echo one")
        await stage.client.request("thread/compact/start", {"threadId": thread})
        await stage.client.wait_for("item/completed", lambda params: params["item"]["type"] == "contextCompaction")
        await stage.client.wait_for("turn/completed", lambda _: len(stage.client.told("turn/completed")) == 2)
        assert (await stage.run(thread, "more"))["status"] == "completed"
    _, _, summary, last, *_ = bodies(engine)
    assert summary["tool_choice"] == {"type": "none"}
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]


async def test_failures_are_what_they_are(tmp_path: Path, engine: EngineModel) -> None:
    async with stage_on(tmp_path, engine.base_url) as stage:
        # The same words as for the same failures over the Responses API.
        refused = {"httpConnectionFailed": {"httpStatusCode": 401}}
        for status, info in ((400, "other"), (401, refused), (529, "serverOverloaded")):
            thread = await stage.start(config={"model_providers.claude.stream_max_retries": 0})
            turn = await stage.run(thread, f"HTTP:{status}")
            assert (turn["status"], turn["error"]["codexErrorInfo"]) == ("failed", info)
            assert f"mock error {status}" in turn["error"]["message"]


async def test_a_cut_stream_is_asked_for_again(tmp_path: Path) -> None:
    whole = _reply("fine", "end_turn")
    async with model_server() as server, stage_on(tmp_path, server.base_url) as stage:
        server.play(chunked(sse(*whole[:3]), then="close", ended=False), chunked(sse(*whole)))
        thread = await stage.start()
        assert (await stage.run(thread, "hello"))["status"] == "completed"
        assert [item["text"] for item in stage.completed("agentMessage")] == ["fine"]
        assert server.asked[0].body == server.asked[1].body


async def test_a_paused_answer_goes_on_in_the_same_turn(tmp_path: Path) -> None:
    async with model_server() as server, stage_on(tmp_path, server.base_url) as stage:
        server.play(chunked(sse(*_reply("wait", "pause_turn"))), chunked(sse(*_reply("here", "end_turn"))))
        thread = await stage.start()
        assert (await stage.run(thread, "hello"))["status"] == "completed"
        assert [item["text"] for item in stage.completed("agentMessage")] == ["wait", "here"]
        assert [message["role"] for message in server.asked[1].body["messages"]] == ["user", "assistant", "user"]
        check_rules(server.asked[1].body)


async def test_an_answer_that_is_too_long_fails_and_runs_no_half_call(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    start, *_ = _reply("", "end_turn")
    cut = [
        start,
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t", "name": "exec_command", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": json.dumps({"cmd": f"touch {marker}"})[:-1]},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    async with model_server() as server, stage_on(tmp_path, server.base_url) as stage:
        server.play(chunked(sse(*cut)))
        turn = await stage.run(await stage.start(), "hello")
        assert turn["status"] == "failed"
        assert "most tokens" in turn["error"]["message"]
        assert not stage.completed("commandExecution")
        assert not marker.exists()


async def test_a_server_that_knows_less_is_asked_in_another_way(tmp_path: Path) -> None:
    async with model_server() as server, stage_on(tmp_path, server.base_url) as stage:
        refused = {"type": "error", "error": {"type": "invalid_request_error", "message": "thinking: not permitted"}}
        payload = json.dumps(refused)
        head = f"HTTP/1.1 400 X\r\nContent-Length: {len(payload)}\r\n\r\n{payload}".encode()
        server.play(Reply([head]), Reply([head]), chunked(sse(*_reply("fine", "end_turn"))))
        thread = await stage.start(model="qwen3")
        assert (await stage.run(thread, "hello", effort="high"))["status"] == "completed"
        tried = [asked.body.get("thinking", {}).get("type") for asked in server.asked]
        assert tried == ["adaptive", "enabled", None]


def test_exec_with_a_key_in_a_variable(tmp_path: Path, engine: EngineModel) -> None:
    home = EngineHome(tmp_path, engine)
    (home.home / ".treadle" / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "claude"\n[model_providers.claude]\nwire_api = "anthropic"\n'
        f'base_url = "{engine.base_url}"\nenv_key = "CLAUDE_KEY"\n'
    )
    environment = {**os.environ, **home.env("treadle"), "CLAUDE_KEY": "sk-ant-secret"}
    done = subprocess.run(
        [sys.executable, "-m", "treadle", "exec", "RUN:echo hi"],
        cwd=home.project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tool said:")
    assert {request.header("x-api-key") for request in engine.requests()} == {"sk-ant-secret"}
    assert "sk-ant-secret" not in done.stderr


def _reply(words: str, reason: str) -> list[Json]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": f"msg_{reason}", "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return events


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
