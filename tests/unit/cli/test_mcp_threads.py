"""What an MCP client is asked, and what its answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.cli import AgentQuestion, ToolFailed, decision_of, question_of

IDS = {"threadId": "thread", "turnId": "turn", "itemId": "item"}
YES = {"action": "accept"}
NO = {"action": "decline"}


def question(method: str, *files: str, **params: Any) -> AgentQuestion:
    return question_of(method, {**IDS, **params}, 7, files)


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
    asked = question("item/commandExecution/requestApproval", command="echo 'x", cwd="/work", reason="why")
    assert asked.params["codex_command"] == ["echo 'x"]
    assert asked.params["message"] == "why\nAllow the agent to run `echo 'x` in `/work`?"
    assert asked.answer({"decision": "approved_for_session"}) == {"decision": "acceptForSession"}


def test_a_patch_is_shown_with_its_files() -> None:
    asked = question("item/fileChange/requestApproval", "a.py", "b.py")
    assert asked.params["codex_elicitation"] == "patch-approval"
    assert "a.py, b.py" in asked.params["message"]
    assert asked.answer(NO) == {"decision": "decline"}


def test_permissions_are_given_as_asked_or_not_at_all() -> None:
    wanted = {"network": {"enabled": True}}
    asked = question("item/permissions/requestApproval", permissions=wanted, cwd="/work")
    assert '{"network":{"enabled":true}}' in asked.params["message"]
    assert asked.answer(YES) == {"permissions": wanted, "scope": "turn"}
    assert asked.answer({"decision": "approved_for_session"}) == {"permissions": wanted, "scope": "session"}
    assert asked.answer(NO) == {"permissions": {}, "scope": "turn"}


def test_questions_are_a_form() -> None:
    options = [{"label": "red", "description": ""}, {"label": "blue", "description": ""}]
    asked = question(
        "item/tool/requestUserInput",
        questions=[
            {"id": "color", "header": "Color", "question": "Which color?", "options": options},
            {"id": "name", "header": "Name", "question": "Which name?", "options": options, "isOther": True},
        ],
    )
    schema = asked.params["requestedSchema"]
    assert schema["properties"]["color"]["enum"] == ["red", "blue"]
    assert "enum" not in schema["properties"]["name"]
    given = {"content": {"color": "red", "name": "Ada", "more": 1}}
    assert asked.answer({**YES, **given}) == {"answers": {"color": {"answers": ["red"]}, "name": {"answers": ["Ada"]}}}
    assert asked.answer({**NO, **given}) == {"answers": {}}
    assert asked.answer(YES) == {"answers": {}}


def test_what_an_mcp_server_asks_is_passed_on_with_its_name_and_arguments() -> None:
    meta = {"codex_approval_kind": "mcp_tool_call", "tool_params": {"path": "/etc"}}
    form = {"type": "object", "properties": {}}
    asked = question(
        "mcpServer/elicitation/request",
        serverName="files",
        mode="form",
        message="Allow?",
        requestedSchema=form,
        _meta=meta,
    )
    message = 'MCP server files: Allow?\n{"path":"/etc"}'
    assert asked.params == {"mode": "form", "message": message, "requestedSchema": form, "_meta": meta}
    assert asked.answer({**YES, "content": {"a": 1}}) == {"action": "accept", "content": {"a": 1}, "_meta": None}
    assert asked.answer({"decision": "approved_for_session"})["_meta"] == {"persist": "session"}
    assert asked.answer({"decision": "abort"})["action"] == "cancel"


def test_what_an_mcp_client_cannot_be_asked() -> None:
    with pytest.raises(ToolFailed, match="item/tool/call"):
        question("item/tool/call")
