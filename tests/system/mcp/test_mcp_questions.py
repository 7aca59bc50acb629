"""What an MCP server asks while one of its tools runs: the user, the roots, the model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json
from system.mcp.mcp_scene import ASKED, call, heard, items, mcp_scene, probe_table, run_calls
from treadle.errors import RpcError
from treadle.testing import MockModel

pytestmark = pytest.mark.anyio
CHANGED_ROOTS = "notifications/roots/list_changed"
ASKING: Json = {"full_access": False, "approval_policy": "on-request", "sandbox_mode": "workspace-write"}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def _free(tmp_path: Path, **keys: Any) -> str:
    """A server whose tools need no approval."""
    return probe_table(tmp_path, default_tools_approval_mode="approve", **keys)


def _said(output: str) -> Any:
    return json.loads(output.partition("Output:")[2])


async def test_a_form_goes_to_the_client_and_its_answer_back(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, _free(tmp_path), **ASKING) as stage:
        stage.client.answer = lambda asked: {"action": "accept", "content": {"name": "Ann"}}
        thread = await stage.start()
        outputs = await run_calls(stage, thread, call("ask", "Your name?", "c1"))
        assert _said(outputs["c1"]) == {"action": "accept", "content": {"name": "Ann"}}
        (asked,) = stage.client.told(ASKED)
        assert asked["params"] == {
            "threadId": thread,
            "turnId": stage.client.told("turn/started")[0]["params"]["turn"]["id"],
            "serverName": "probe",
            "mode": "form",
            "_meta": None,
            "message": "Your name?",
            "requestedSchema": FORM,
        }
        await check_thread(stage, thread)


async def test_a_page_goes_to_the_client(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, _free(tmp_path), **ASKING) as stage:
        stage.client.answer = lambda asked: {"action": "accept"}
        outputs = await run_calls(stage, await stage.start(), call("ask_url", None, "c1"))
        assert _said(outputs["c1"]) == {"action": "accept", "content": {}}
        params = stage.client.told(ASKED)[0]["params"]
        assert (params["mode"], params["url"]) == ("url", "https://example.com/x")
        assert (params["elicitationId"], params["message"]) == ("e1", "Look here")


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
        ({}, "decline"),
        (RpcError(-1, "x"), "decline"),
    ],
)
async def test_answers_that_are_no_yes(tmp_path: Path, answer: Any, action: str) -> None:
    async with mcp_scene(tmp_path, _free(tmp_path), **ASKING) as stage:
        stage.client.answer = lambda asked: answer
        outputs = await run_calls(stage, await stage.start(), call("ask", None, "c1"))
        assert _said(outputs["c1"]) == {"action": action}
        assert items(stage)[0]["status"] == "completed"


@pytest.mark.parametrize(
    "policy",
    [
        "never",
        {"granular": {"mcp_elicitations": False, "rules": True, "sandbox_approval": True}},
    ],
)
async def test_where_nobody_may_be_asked_the_answer_is_no(tmp_path: Path, policy: Any) -> None:
    async with mcp_scene(tmp_path, _free(tmp_path), **ASKING) as stage:
        outputs = await run_calls(stage, await stage.start(), call("ask", None, "c1"), approvalPolicy=policy)
        assert _said(outputs["c1"]) == {"action": "decline"}
        assert stage.client.told(ASKED) == []


async def test_an_interrupt_takes_the_question_back(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, _free(tmp_path), **ASKING) as stage:
        stage.model.enqueue_calls(call("ask", None, "c1"))
        thread = await stage.start()
        turn = await stage.begin(thread)
        asked = await stage.asked(ASKED)
        await stage.interrupt(thread, turn)
        await stage.end(turn)
        names = [message["method"] for message in stage.client.messages]
        (resolved,) = stage.client.told("serverRequest/resolved")
        assert resolved["params"]["requestId"] == asked["id"]
        assert names.index("serverRequest/resolved") < names.index("turn/completed")
        # The thread is as good as new.
        stage.client.answer = lambda again: {"action": "decline"}
        outputs = await run_calls(stage, thread, call("ask", None, "c2"))
        assert _said(outputs["c2"]) == {"action": "decline"}
        await check_thread(stage, thread)


async def test_a_server_that_dies_takes_its_question_with_it(tmp_path: Path) -> None:
    table = _free(tmp_path, supports_parallel_tool_calls=True)
    async with mcp_scene(tmp_path, table, **ASKING) as stage:
        thread = await stage.start()
        stage.model.enqueue_calls(call("ask", None, "c1"))
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        await stage.asked(ASKED)
        with pytest.raises(RpcError):
            await stage.client.request(
                "mcpServer/tool/call", {"threadId": thread, "server": "probe", "tool": "die", "arguments": {}}
            )
        assert (await stage.end(turn))["status"] == "completed"
        assert items(stage)[0]["status"] == "failed"
        assert len(stage.client.told("serverRequest/resolved")) == 1
        await check_thread(stage, thread)


async def test_a_call_of_the_client_asks_too_without_a_turn(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, _free(tmp_path), **ASKING) as stage:
        stage.client.answer = lambda asked: {"action": "accept", "content": {"name": "Bob"}}
        thread = await stage.start()
        params = {"threadId": thread, "server": "probe", "tool": "ask", "arguments": {}}
        answer = await stage.client.request("mcpServer/tool/call", params)
        assert json.loads(answer["content"][0]["text"]) == {"action": "accept", "content": {"name": "Bob"}}
        assert stage.client.told(ASKED)[0]["params"]["turnId"] is None
        await run_calls(stage, thread, call("echo"))
        await check_thread(stage, thread)


async def test_a_question_without_a_call_is_for_nobody(tmp_path: Path) -> None:
    """Nobody would take it back."""
    table = probe_table(tmp_path, "probe", "--fault", "asks", default_tools_approval_mode="approve")
    async with mcp_scene(tmp_path, table, **ASKING) as stage:
        thread = await stage.start()
        await run_calls(stage, thread, call("echo"))
        other = tmp_path / "other"
        other.mkdir()
        roots = {"threadId": thread, "runtimeWorkspaceRoots": [str(other)]}
        await stage.client.request("thread/resume", roots)
        async with asyncio.timeout(60):
            while {"action": "cancel"} not in [answer.get("result") for answer in heard(tmp_path)]:
                await asyncio.sleep(0.01)
        assert stage.client.told(ASKED) == []


async def test_what_follows_the_answer_is_overlooked(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        outputs = await run_calls(stage, thread, call("late", None, "c1"), call("echo", "on", "c2"))
        assert [output.partition("Output:")[2].strip() for output in outputs.values()] == ["ok", "on"]
        assert [item["status"] for item in items(stage)] == ["completed", "completed"]
        assert "too late" not in json.dumps(stage.client.messages)


async def test_a_server_hears_of_other_roots(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        await run_calls(stage, thread, call("roots"))
        (hello,) = heard(tmp_path, "initialize")
        assert hello["params"]["capabilities"]["roots"] == {"listChanged": True}
        await run_calls(stage, thread, call("roots"), model="mock-model-2", runtimeWorkspaceRoots=None)
        assert heard(tmp_path, CHANGED_ROOTS) == []
        outputs = await run_calls(stage, thread, call("roots", None, "c3"), runtimeWorkspaceRoots=[str(other)])
        assert _said(outputs["c3"]) == {"roots": [{"uri": other.as_uri(), "name": "other"}]}
        assert len(heard(tmp_path, CHANGED_ROOTS)) == 1
        await run_calls(stage, thread, call("roots"), cwd=str(other))  # it is the only root already
        assert len(heard(tmp_path, CHANGED_ROOTS)) == 1


async def test_the_roots_are_the_workspace(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        outputs = await run_calls(stage, await stage.start(), call("roots", None, "c1"))
        assert _said(outputs["c1"]) == {"roots": [{"uri": stage.workspace.as_uri(), "name": stage.workspace.name}]}


async def test_what_a_server_wants_logged_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with mcp_scene(tmp_path) as stage:
        await run_calls(stage, await stage.start(), call("log", "the disk is nearly full"))
        (line,) = [record for record in caplog.records if record.msg == "an MCP server says"]
        assert line.args == {"server": "probe", "logger": "probe", "text": "the disk is nearly full"}


# --- sampling ---------------------------------------------------------------------------------------------------------


async def test_without_the_setting_a_server_cannot_ask_the_model(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        outputs = await run_calls(stage, await stage.start(), call("sample", None, "c1"))
        assert _said(outputs["c1"])["code"] == -32601
        (hello,) = heard(tmp_path, "initialize")
        assert "sampling" not in hello["params"]["capabilities"]


@pytest.mark.every_wire
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_with_it_the_user_is_asked_each_time(tmp_path: Path, action: str) -> None:
    with MockModel() as model:
        async with mcp_scene(tmp_path, _free(tmp_path, sampling=True), model=model, **ASKING) as stage:
            stage.client.answer = lambda asked: {"action": action}
            stage.model.enqueue_calls(call("sample", "What is the answer?", "c1"))
            if action == "accept":
                stage.model.enqueue_assistant_message("42")
            stage.model.enqueue_assistant_message("done")
            thread = await stage.start()
            assert (await stage.run(thread, "a secret of the conversation"))["status"] == "completed"
            (asked,) = stage.client.told(ASKED)
            assert "What is the answer?" in asked["params"]["message"]
            said = _said(stage.model.requests()[-1].tool_outputs["c1"])
            if action == "accept":
                assert said["content"] == {"type": "text", "text": "42"}
                assert (said["role"], said["model"]) == ("assistant", "mock-model")
                sampled = json.dumps(stage.model.requests()[1].json)
                assert "What is the answer?" in sampled
                assert "a secret of the conversation" not in sampled
            else:
                assert said == {"code": -1, "message": "User rejected sampling request"}
            assert [item["text"] for item in stage.completed("agentMessage")] == ["done"]
            await check_thread(stage, thread)


async def test_under_never_no_model_is_asked(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, sampling=True)) as stage:
        outputs = await run_calls(stage, await stage.start(), call("sample", None, "c1"))
        assert _said(outputs["c1"])["code"] == -1
        assert stage.client.told(ASKED) == []
