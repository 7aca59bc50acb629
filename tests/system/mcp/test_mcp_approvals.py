"""Who is asked before a tool of an MCP server runs, and what the answers do."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene
from system.mcp.mcp_scene import ASKED, call, heard, items, mcp_scene, probe_table, run_calls
from treadle.errors import RpcError
from treadle.testing import MockModel

pytestmark = pytest.mark.anyio
ASKING: Json = {"full_access": False, "approval_policy": "on-request", "sandbox_mode": "workspace-write"}


def _answers(stage: Scene, *answers: Any) -> None:
    """One after the other."""
    left = list(answers)
    stage.client.answer = lambda asked: left.pop(0) if asked["method"] == ASKED else None


def _asked(stage: Scene) -> list[Json]:
    return [each["params"] for each in stage.client.told(ASKED)]


def _accept(persist: str | None = None) -> Json:
    more = {} if persist is None else {"_meta": {"persist": persist}}
    return {"action": "accept", "content": {}, **more}


@pytest.mark.every_wire
async def test_the_question_is_an_elicitation_as_clients_know_it(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, **ASKING) as stage:
        _answers(stage, _accept())
        thread = await stage.start()
        outputs = await run_calls(stage, thread, call("write_it", "v", "c1"))
        assert outputs["c1"].endswith("written")
        (asked,) = _asked(stage)
        turn = asked.pop("turnId")
        assert asked == {
            "threadId": thread,
            "serverName": "probe",
            "mode": "form",
            "_meta": {
                "codex_approval_kind": "mcp_tool_call",
                "persist": ["session", "always"],
                "tool_description": "write_it tool",
                "tool_params": {"text": "v"},
                "tool_params_display": [{"name": "text", "value": "v", "display_name": "text"}],
            },
            "message": 'Allow the probe MCP server to run tool "write_it"?',
            "requestedSchema": {"type": "object", "properties": {}},
        }
        assert turn == stage.client.told("turn/started")[0]["params"]["turn"]["id"]
        names = [message["method"] for message in stage.client.messages]
        assert names.index("item/started") < names.index(ASKED) < names.index("serverRequest/resolved")
        flags = [each["params"]["status"].get("activeFlags") for each in stage.client.told("thread/status/changed")]
        assert ["waitingOnApproval"] in flags
        await check_thread(stage, thread)


@pytest.mark.parametrize("tool", ["echo", "safe"])
async def test_what_only_reads_or_does_no_harm_is_not_asked_for(tmp_path: Path, tool: str) -> None:
    async with mcp_scene(tmp_path, **ASKING) as stage:
        await run_calls(stage, await stage.start(), call(tool))
        assert _asked(stage) == []
        assert items(stage)[0]["status"] == "completed"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"action": "decline"}, "user rejected MCP tool call"),
        ({"action": "cancel"}, "user cancelled MCP tool call"),
        ({}, "user rejected MCP tool call"),
        (RpcError(-1, "no"), "user rejected MCP tool call"),
    ],
)
async def test_without_a_yes_it_does_not_run_and_the_turn_goes_on(tmp_path: Path, answer: Any, message: str) -> None:
    async with mcp_scene(tmp_path, **ASKING) as stage:
        _answers(stage, answer)
        outputs = await run_calls(stage, await stage.start(), call("write_it", None, "c1"))
        assert outputs["c1"].endswith(message)
        (item,) = items(stage)
        assert (item["status"], item["error"], item["result"]) == ("failed", {"message": message}, None)
        assert heard(tmp_path, "tools/call") == []


async def test_a_yes_for_the_session_is_for_this_tool_and_ends_with_the_settings(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, **ASKING) as stage:
        _answers(stage, _accept("session"), {"action": "decline"}, {"action": "decline"})
        thread = await stage.start()
        await run_calls(stage, thread, call("write_it"))
        await run_calls(stage, thread, call("write_it"))
        assert len(_asked(stage)) == 1
        await run_calls(stage, thread, call("empty"))  # which says nothing of itself
        assert len(_asked(stage)) == 2
        await run_calls(stage, thread, call("write_it"), approvalPolicy="untrusted")
        assert len(_asked(stage)) == 3


async def test_a_yes_for_ever_is_written_to_the_file_and_restarts_nothing(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, **ASKING) as stage:
        _answers(stage, _accept("always"))
        thread = await stage.start()
        await run_calls(stage, thread, call("write_it"))
        await run_calls(stage, thread, call("write_it"))
        await run_calls(stage, await stage.start(), call("write_it"))
        assert len(_asked(stage)) == 1
        written = tomllib.loads((stage.harness.home / "config.toml").read_text())
        assert written["mcp_servers"]["probe"]["tools"] == {"write_it": {"approval_mode": "approve"}}
        assert len(heard(tmp_path, "initialize")) == 2  # one for each thread


async def test_a_yes_for_ever_to_a_server_of_the_thread_is_for_the_session(tmp_path: Path) -> None:
    table = tomllib.loads(probe_table(tmp_path, "own"))
    async with mcp_scene(tmp_path, probe_table(tmp_path), **ASKING) as stage:
        _answers(stage, _accept("always"))
        before = (stage.harness.home / "config.toml").read_text()
        thread = await stage.start(config=table)
        await run_calls(stage, thread, call("write_it", server="own"))
        await run_calls(stage, thread, call("write_it", server="own"))
        assert len(_asked(stage)) == 1
        assert (stage.harness.home / "config.toml").read_text() == before
        (warning,) = stage.client.told("warning")
        assert "is allowed for this session only" in warning["params"]["message"]


@pytest.mark.parametrize(
    ("mode", "tool", "is_asked"),
    [
        ("prompt", "echo", True),
        ("writes", "echo", False),
        ("writes", "safe", True),
        ("approve", "write_it", False),
    ],
)
async def test_modes_of_the_settings(tmp_path: Path, mode: str, tool: str, is_asked: bool) -> None:
    table = probe_table(tmp_path, tools={tool: {"approval_mode": mode}})
    async with mcp_scene(tmp_path, table, **ASKING) as stage:
        _answers(stage, _accept("session"), _accept())
        thread = await stage.start()
        await run_calls(stage, thread, call(tool))
        await run_calls(stage, thread, call(tool))
        # Where the settings want a question, it is for each call, and offers nothing else.
        assert ["persist" in asked["_meta"] for asked in _asked(stage)] == [False] * (2 * is_asked)
        assert [item["status"] for item in items(stage)] == ["completed"] * 2


@pytest.mark.parametrize(
    ("sandbox", "mode", "tool", "runs"),
    [
        ("workspace-write", "auto", "echo", True),
        ("workspace-write", "auto", "safe", True),
        ("workspace-write", "auto", "write_it", False),
        ("workspace-write", "prompt", "echo", False),
        ("workspace-write", "approve", "write_it", True),
        ("danger-full-access", "auto", "write_it", True),
        ("danger-full-access", "prompt", "write_it", True),
    ],
)
async def test_where_nobody_may_be_asked(tmp_path: Path, sandbox: str, mode: str, tool: str, runs: bool) -> None:
    table = probe_table(tmp_path, default_tools_approval_mode=mode)
    async with mcp_scene(tmp_path, table, full_access=False, approval_policy="never", sandbox_mode=sandbox) as stage:
        outputs = await run_calls(stage, await stage.start(), call(tool, "x", "c1"))
        assert _asked(stage) == []
        (item,) = items(stage)
        if runs:
            assert item["status"] == "completed"
        else:
            said = "MCP tool call requires approval, but approval policy is never"
            assert (item["status"], item["error"]["message"]) == ("failed", said)
            assert outputs["c1"].endswith(said)
            assert heard(tmp_path, "tools/call") == []


async def test_a_question_is_taken_back_when_the_settings_change(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, **ASKING) as stage:
        stage.model.enqueue_calls(call("write_it", None, "c1"))
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start()
        turn = await stage.begin(thread)
        asked = await stage.asked(ASKED)
        await stage.client.request("thread/settings/update", {"threadId": thread, "approvalPolicy": "never"})
        await stage.end(turn)
        stage.client.reply(asked, _accept())  # too late
        assert items(stage)[0]["status"] == "failed"
        assert heard(tmp_path, "tools/call") == []
        assert "nothing was done" in stage.model.requests()[-1].tool_outputs["c1"]


# --- plan mode --------------------------------------------------------------------------------------------------------

PLAN: Json = {"collaborationMode": {"mode": "plan", "settings": {"model": "mock-model"}}}


@pytest.mark.parametrize(("tool", "runs"), [("echo", True), ("write_it", False)])
async def test_in_plan_mode_nothing_is_changed(tmp_path: Path, tool: str, runs: bool) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, default_tools_approval_mode="approve")) as stage:
        outputs = await run_calls(stage, await stage.start(), call(tool, "x", "c1"), **PLAN)
        assert len(heard(tmp_path, "tools/call")) == runs
        assert ("in plan mode nothing is changed" in outputs["c1"]) is not runs


async def test_in_plan_mode_a_tool_that_says_nothing_of_itself_is_asked_for(tmp_path: Path) -> None:
    table = probe_table(tmp_path, default_tools_approval_mode="approve")
    async with mcp_scene(tmp_path, table, **ASKING) as stage:
        _answers(stage, {"action": "decline"})
        await run_calls(stage, await stage.start(), call("empty"), **PLAN)
        assert len(_asked(stage)) == 1
        assert heard(tmp_path, "tools/call") == []


# --- the automatic reviewer -------------------------------------------------------------------------------------------


def _verdict(outcome: str) -> str:
    return json.dumps({"risk_level": "low", "user_authorization": "high", "rationale": "Because.", "outcome": outcome})


@pytest.mark.every_wire
@pytest.mark.parametrize("outcome", ["allow", "deny"])
async def test_the_automatic_reviewer_answers_instead_of_the_user(tmp_path: Path, outcome: str) -> None:
    with MockModel() as model:
        async with mcp_scene(tmp_path, model=model, **ASKING) as stage:
            stage.model.enqueue_calls(call("write_it", "v", "c1"))
            stage.model.enqueue_assistant_message(_verdict(outcome))
            stage.model.enqueue_assistant_message("done")
            thread = await stage.start(approvalsReviewer="auto_review")
            assert (await stage.run(thread))["status"] == "completed"
            assert _asked(stage) == []
            (done,) = stage.client.told("item/autoApprovalReview/completed")
            assert done["params"]["action"] == {
                "type": "mcpToolCall",
                "server": "probe",
                "toolName": "write_it",
                "connectorId": None,
                "connectorName": None,
                "toolTitle": None,
            }
            assert done["params"]["targetItemId"] == "c1"
            assert len(heard(tmp_path, "tools/call")) == (outcome == "allow")
            output = stage.model.requests()[-1].tool_outputs["c1"]
            assert ("denied by the automatic reviewer" in output) is (outcome == "deny")
            await check_thread(stage, thread)
