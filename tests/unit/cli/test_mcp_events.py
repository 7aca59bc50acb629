"""What an MCP client is asked, and what its answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.cli import approval_elicitation, decision_of, form_answers, form_elicitation
from treadle.client import ApprovalRequest, UserInputRequest
from treadle.protocol.app import (
    CommandExecutionRequestApprovalParams,
    FileChangeRequestApprovalParams,
    FileUpdateChange,
    RequestPermissionProfile,
    ToolRequestUserInputOption,
    ToolRequestUserInputQuestion,
    decode,
)

IDS: dict[str, Any] = {"thread_id": "thread", "turn_id": "turn", "item_id": "item"}
YES = {"action": "accept"}
NO = {"action": "decline"}


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"action": "accept"}, "accept"),
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
        ({"action": "accept", "decision": "denied"}, "decline"),
        ({"action": "cancel", "decision": "approved"}, "cancel"),
        ({"decision": "approved"}, "accept"),
        ({"decision": "approved_for_session"}, "acceptForSession"),
        ({"decision": "acceptForSession"}, "acceptForSession"),
        ({"decision": "denied"}, "decline"),
        ({"decision": "abort"}, "cancel"),
        ({"decision": {"approved_execpolicy_amendment": {}}}, "decline"),
        ({"decision": None}, "decline"),
        ({"action": "yes"}, "decline"),
        ({"action": ["accept"]}, "decline"),
        ({}, "decline"),
    ],
)
def test_only_a_yes_is_a_yes(answer: dict[str, Any], decision: str) -> None:
    assert decision_of(answer) == decision


def test_a_command_that_is_no_shell_words_is_shown_whole() -> None:
    raw = CommandExecutionRequestApprovalParams(**IDS, started_at_ms=0, command="echo 'x", cwd="/there")
    request = ApprovalRequest(kind="command", **IDS, reason="why", command="echo 'x", cwd="/there", params=raw)
    asked = approval_elicitation(request, 7)
    assert asked.params["codex_command"] == ["echo 'x"]
    assert asked.params["codex_mcp_tool_call_id"] == "7"
    assert asked.params["message"] == "why\nAllow the agent to run `echo 'x` in `/there`?"
    assert asked.event is not None
    assert (asked.event["type"], asked.event["command"]) == ("exec_approval_request", ["echo 'x"])


def test_a_patch_is_shown_with_its_changes() -> None:
    raw = FileChangeRequestApprovalParams(**IDS, started_at_ms=0)
    kinds = {"a.py": b'{"type":"add"}', "b.py": b'{"type":"update","move_path":"c.py"}'}
    changes = tuple(
        decode(b'{"path":"%b","diff":"x","kind":%b}' % (path.encode(), kind), FileUpdateChange)
        for path, kind in kinds.items()
    )
    asked = approval_elicitation(ApprovalRequest(kind="patch", **IDS, changes=changes, params=raw), "call")
    assert asked.params["codex_elicitation"] == "patch-approval"
    assert "a.py, b.py" in asked.params["message"]
    assert asked.params["codex_changes"] == {
        "a.py": {"type": "add", "content": "x"},
        "b.py": {"type": "update", "unified_diff": "x", "move_path": "c.py"},
    }


def test_permissions_are_shown() -> None:
    wanted = decode(b'{"network":{"enabled":true}}', RequestPermissionProfile)
    asked = approval_elicitation(ApprovalRequest(kind="permissions", **IDS, permissions=wanted), 7)
    assert '"network":{"enabled":true}' in asked.params["message"]
    assert asked.event is None


def test_a_tool_of_another_server_is_shown_with_its_server_and_arguments() -> None:
    request = ApprovalRequest(kind="tool", **IDS, reason="Allow?", server="files", arguments={"path": "/etc"})
    asked = approval_elicitation(request, 7)
    assert asked.params["message"] == 'MCP server files: Allow?\n{"path":"/etc"}'
    assert asked.params["requestedSchema"] == {"type": "object", "properties": {}}


def test_questions_are_a_form() -> None:
    options = tuple(ToolRequestUserInputOption(label=label, description="") for label in ("red", "blue"))
    color = ToolRequestUserInputQuestion(id="color", header="Color", question="Which color?", options=options)
    name = ToolRequestUserInputQuestion(
        id="name", header="Name", question="Which name?", options=options, is_other=True
    )
    request = UserInputRequest(kind="questions", thread_id="thread", turn_id="turn", questions=(color, name))
    schema = form_elicitation(request).params["requestedSchema"]
    assert schema["properties"]["color"]["enum"] == ["red", "blue"]
    assert "enum" not in schema["properties"]["name"]
    given = {"content": {"color": "red", "name": "Ada", "more": 1}}
    assert form_answers(request, {**YES, **given}) == {"color": "red", "name": "Ada"}
    assert form_answers(request, {**NO, **given}) is None
    assert form_answers(request, YES) == {}


def test_what_a_server_asks_is_passed_on_with_its_name() -> None:
    form = {"type": "object", "properties": {}}
    request = UserInputRequest(
        kind="elicitation", thread_id="thread", turn_id="turn", message="Which?", schema=form, server="files"
    )
    message = "MCP server files: Which?"
    assert form_elicitation(request).params == {"mode": "form", "message": message, "requestedSchema": form}
    assert form_answers(request, {**YES, "content": {"a": 1}}) == {"a": 1}
    assert form_answers(request, {"action": "cancel", "content": {"a": 1}}) is None
