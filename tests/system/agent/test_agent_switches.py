"""Features and tools that are switched off, and threads without an environment, with the request that the codex TUI
makes for a title."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from system.agent.scene import Json, Scene, patch, scene, shell
from told_tools import KNOWN
from treadle.errors import RpcError
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio]

_OFF = (
    *("apps", "code_mode", "code_mode_only", "context_management", "current_time_reminder", "deferred_executor"),
    *("enable_fanout", "goals", "hooks", "image_generation", "memories", "multi_agent", "multi_agent_v2", "plugins"),
    *("request_permissions_tool", "shell_snapshot", "shell_tool", "standalone_web_search", "token_budget"),
    *("tool_suggest", "unified_exec", "view_image"),
)
# As recorded from codex 0.166.
TITLE: Json = {
    "ephemeral": True,
    "sandbox": "read-only",
    "threadSource": "thread_title",
    "environments": [],
    "dynamicTools": [],
    "config": {
        **{f"features.{name}": False for name in _OFF},
        "tools.update_plan.enabled": False,
        "tools.experimental_request_user_input.enabled": False,
        "skills.include_instructions": False,
        "cloud.skills.enabled": False,
        "default_permissions": ":read-only",
        "mcp_servers": {},
        "web_search": "disabled",
    },
}
SCHEMA: Json = {
    "type": "object",
    "properties": {"title": {"type": "string", "minLength": 1, "maxLength": 36}},
    "required": ["title"],
    "additionalProperties": False,
}
LOCAL = "local"


async def _outputs(stage: Scene, *calls: ToolCall, turn: Json | None = None, **params: Any) -> dict[str, str]:
    """What the calls of one turn are answered."""
    stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    thread = await stage.start(**params)
    assert (await stage.run(thread, **(turn or {})))["status"] == "completed"
    return stage.model.requests()[-1].tool_outputs


def _told(stage: Scene) -> list[str]:
    return [name for name in stage.model.requests()[0].tool_names if name in KNOWN]


async def test_the_thread_for_a_title_has_nothing_but_patches_and_nowhere_to_apply_them(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        target = stage.workspace / "made"
        outputs = await _outputs(
            stage,
            ToolCall("exec_command", shell(f"touch {target}"), "c1"),
            ToolCall("apply_patch", patch(f"*** Add File: {target}", "+x"), "c2", custom=True),
            ToolCall("get_goal", {}, "c3"),
            ToolCall("request_user_input", {"questions": []}, "c4"),
            turn={"outputSchema": SCHEMA},
            **TITLE,
        )
        assert _told(stage) == ["apply_patch"]
        assert outputs["c1"] == "unsupported call: exec_command"
        assert "no environment" in outputs["c2"]
        assert outputs["c3"] == "unsupported call: get_goal"
        assert outputs["c4"] == "unsupported call: request_user_input"
        assert not target.exists()
        assert stage.completed("commandExecution") == stage.completed("fileChange") == []


async def test_with_the_offline_model_what_the_user_said_runs_once(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"model": "offline", "model_provider": "offline"}) as stage:
        thread = await stage.start()
        title = await stage.start(**TITLE)
        prompt = "Write a title of at most 36 characters. Do not answer the request.\n\nlook around and mend the roof"
        assert (await stage.run(title, prompt, outputSchema=SCHEMA))["status"] == "completed"
        (answer,) = stage.completed("agentMessage")
        assert json.loads(answer["text"]) == {"title": "look around and mend the roof"}
        assert (await stage.run(thread, "look around and mend the roof"))["status"] == "completed"
        begun = [message["params"] for message in stage.client.told("item/started")]
        assert {one["threadId"] for one in begun if one["item"]["type"] == "commandExecution"} == {thread}
        shown = [one["item"]["type"] for one in begun if one["threadId"] == title]
        assert shown == ["userMessage", "agentMessage"]


async def test_a_tool_that_is_switched_off_in_the_file_is_refused(tmp_path: Path) -> None:
    extra = "[features]\ngoals = false\n[tools.update_plan]\nenabled = false\n"
    async with scene(tmp_path, extra_toml=extra) as stage:
        outputs = await _outputs(
            stage,
            ToolCall("update_plan", {"plan": [{"step": "a", "status": "pending"}]}, "c1"),
            ToolCall("create_goal", {"objective": "o"}, "c2"),
            ToolCall("exec_command", shell("echo here"), "c3"),
        )
        assert _told(stage) == ["exec_command", "write_stdin", "apply_patch", "view_image"]
        assert outputs["c1"] == "unsupported call: update_plan"
        assert outputs["c2"] == "unsupported call: create_goal"
        assert "here" in outputs["c3"]
        assert stage.client.told("turn/plan/updated", "thread/goal/updated") == []


async def test_without_goals_there_is_none_to_set(tmp_path: Path) -> None:
    async with scene(tmp_path, extra_toml="[features]\ngoals = false\n") as stage:
        thread = await stage.start()
        for method in ("thread/goal/set", "thread/goal/get", "thread/goal/clear"):
            with pytest.raises(RpcError, match="goals feature is disabled"):
                await stage.client.request(method, {"threadId": thread})


async def test_a_client_brings_a_tool_in_place_of_one_that_is_switched_off(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        spec = {"type": "function", "name": "exec_command", "description": "d", "inputSchema": {"type": "object"}}
        stage.model.enqueue_calls(ToolCall("exec_command", {}, "c1"))
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start(config={"features.shell_tool": False}, dynamicTools=[spec])
        turn = await stage.begin(thread)
        asked = await stage.asked("item/tool/call")
        content = [{"type": "inputText", "text": "the client's"}]
        stage.client.reply(asked, {"contentItems": content, "success": True})
        assert (await stage.end(turn))["status"] == "completed"
        assert stage.model.requests()[-1].tool_outputs["c1"] == "the client's"


async def test_an_environment_comes_and_goes_with_turns_and_stays(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(environments=[])
        inside = stage.workspace / "inside"
        inside.mkdir()
        here = [{"environmentId": LOCAL, "cwd": str(inside)}]
        said: list[str] = []
        for given in (None, here, None, [], None):
            stage.model.enqueue_calls(ToolCall("exec_command", shell("pwd"), f"c{len(said)}"))
            stage.model.enqueue_assistant_message("done")
            await stage.run(thread, environments=given)
            said.append(stage.model.requests()[-1].tool_outputs[f"c{len(said)}"])
        assert ["no environment" in output for output in said] == [True, False, False, True, True]
        assert [str(inside) in output for output in said] == [False, True, True, False, False]
        with pytest.raises(RpcError, match="no environment"):
            await stage.client.request("thread/shellCommand", {"threadId": thread, "command": "true"})


@pytest.mark.parametrize("method", ["thread/start", "turn/start"])
async def test_an_environment_that_is_not_there_is_refused(tmp_path: Path, method: str) -> None:
    async with scene(tmp_path) as stage:
        params: Json = {"environments": [{"environmentId": "elsewhere", "cwd": "/"}]}
        if method == "turn/start":
            params |= {"threadId": await stage.start(), "input": [{"type": "text", "text": "go"}]}
        with pytest.raises(RpcError, match="unknown turn environment id `elsewhere`"):
            await stage.client.request(method, params)


async def test_the_list_of_features_says_how_it_is(tmp_path: Path) -> None:
    async with scene(tmp_path, extra_toml="[features]\ngoals = false\n") as stage:
        thread = await stage.start(config={"features.shell_tool": False})

        async def enabled(**params: Any) -> dict[str, bool]:
            found = await stage.client.request("experimentalFeature/list", params)
            assert found["nextCursor"] is None
            return {feature["name"]: feature["enabled"] for feature in found["data"]}

        assert await enabled() == {
            "shell_tool": True,
            "view_image": True,
            "goals": False,
            "default_mode_request_user_input": False,
            "multi_agent": True,
            "undo": True,
        }
        assert (await enabled(threadId=thread))["shell_tool"] is False
        assert (await enabled(threadId=thread))["goals"] is False
