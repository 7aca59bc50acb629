"""Hooks of calls: commands that refuse, change and comment what the model does, in every wire API."""

from __future__ import annotations

from pathlib import Path

import pytest

from system.agent.scene import Scene, shell
from system.hooks.hooks_scene import command, hooked, runs, says, specific, told
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio  # what a wire API may change is tried on each, and the rest on one


async def _output(stage: Scene, cmd: str = "echo original") -> str:
    """What the model got for a command."""
    stage.model.enqueue_calls(ToolCall("exec_command", shell(cmd), "c1"))
    stage.model.enqueue_assistant_message("done")
    assert (await stage.run(await stage.start()))["status"] == "completed"
    return stage.model.requests()[-1].tool_outputs["c1"]


@pytest.mark.every_wire
async def test_nothing_said_changes_nothing(tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with hooked(tmp_path, {"PreToolUse": [command(says(note=note))]}) as stage:
        assert "original" in await _output(stage)
        assert runs(stage) == [("preToolUse", "completed", [])]
        thread = stage.client.told("thread/started")[0]["params"]["thread"]["id"]
    (given,) = told(note)
    turn_id, model = given.pop("turn_id"), given.pop("model")
    assert turn_id
    assert model
    assert given == {
        "session_id": thread,
        "transcript_path": None,
        "cwd": str(stage.workspace),
        "hook_event_name": "PreToolUse",
        "permission_mode": "bypassPermissions",
        "tool_name": "Bash",
        "tool_input": {"command": "echo original"},
        "tool_use_id": "c1",
    }


@pytest.mark.parametrize(
    "answer",
    [
        says(specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="not that")),
        says({"decision": "block", "reason": "not that"}),
        says(stderr="not that", code=2),
    ],
)
async def test_deny(tmp_path: Path, answer: str) -> None:
    async with hooked(tmp_path, {"PreToolUse": [command(answer)]}) as stage:
        assert (
            await _output(stage, "touch there") == "Command blocked by PreToolUse hook: not that. Command: touch there"
        )
        assert runs(stage) == [("preToolUse", "blocked", [("feedback", "not that")])]
        assert not (stage.workspace / "there").exists()
        assert stage.completed("commandExecution") == []


@pytest.mark.every_wire
async def test_change(tmp_path: Path) -> None:
    changed = specific("PreToolUse", permissionDecision="allow", updatedInput={"command": "echo changed"})
    async with hooked(tmp_path, {"PreToolUse": [command(says(changed))]}) as stage:
        assert "changed" in await _output(stage)
        (item,) = stage.completed("commandExecution")
        assert item["aggregatedOutput"] == "changed\n"


async def test_a_change_of_another_shape_fails_the_call(tmp_path: Path) -> None:
    changed = specific("PreToolUse", permissionDecision="allow", updatedInput={"cmd": "echo changed"})
    async with hooked(tmp_path, {"PreToolUse": [command(says(changed))]}) as stage:
        assert await _output(stage) == "hook returned updatedInput without string field `command`"


@pytest.mark.every_wire
async def test_context_of_both_sides(tmp_path: Path) -> None:
    events = {
        "PreToolUse": [command(says(specific("PreToolUse", additionalContext="CTX-PRE")))],
        "PostToolUse": [command(says(specific("PostToolUse", additionalContext="CTX-POST")))],
    }
    async with hooked(tmp_path, events) as stage:
        assert "original" in await _output(stage)
        texts = [
            text for role in ("developer", "system", "user") for text in stage.model.requests()[-1].input_texts(role)
        ]
        assert [text for text in texts if "CTX" in text] == ["CTX-PRE", "CTX-POST"]


async def test_after_a_call(tmp_path: Path) -> None:
    note = tmp_path / "note"
    answer = says({"decision": "block", "reason": "look again"}, note=note)
    async with hooked(tmp_path, {"PostToolUse": [command(answer, matcher="Bash")]}) as stage:
        assert await _output(stage, "echo out; exit 3") == "look again"
        assert runs(stage) == [("postToolUse", "blocked", [("feedback", "look again")])]
    (given,) = told(note)
    assert (given["tool_response"], given["tool_use_id"]) == ("out\n", "c1")
