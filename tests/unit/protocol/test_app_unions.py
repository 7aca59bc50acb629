"""Open unions keep what they don't know, closed ones refuse it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocol.app import (
    METHODS,
    NOTIFICATIONS,
    SERVER_REQUESTS,
    AcceptWithExecpolicyAmendmentDecision,
    AgentMessageThreadItem,
    CodexErrorInfo,
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    ExecpolicyAmendment,
    GranularAskForApproval,
    HttpConnectionFailedCodexErrorInfo,
    ItemStartedNotification,
    SessionSource,
    Thread,
    ThreadItem,
    ThreadStartParams,
    ThreadStartResponse,
    Turn,
    TurnError,
    TurnStartParams,
    Unknown,
    UnknownItem,
    UserMessageThreadItem,
    convert,
    decode,
    encode,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


def item(members: dict[str, Any]) -> bytes:
    return json.dumps({"threadId": "t", "turnId": "u", "startedAtMs": 1, "item": members}).encode()


@given(OBJECTS)
def test_an_unknown_item_is_kept_and_sent_on_unchanged(members: dict[str, Any]) -> None:
    raw = item({**members, "type": "hologram"})
    notice = decode(raw, ItemStartedNotification)
    assert isinstance(notice.item, UnknownItem)
    assert notice.item.type == "hologram"
    assert notice.item.root is notice.item
    assert json.loads(encode(notice)) == json.loads(raw)
    assert notice.model_dump(by_alias=True) == json.loads(raw)
    assert json.loads(notice.item.model_dump_json()) == notice.item.model_dump() == json.loads(raw)["item"]


@given(OBJECTS.filter(lambda members: not isinstance(members.get("type"), str)))
def test_an_item_without_a_type_is_kept_too(members: dict[str, Any]) -> None:
    kept = decode(item(members), ItemStartedNotification).item
    assert isinstance(kept, UnknownItem)
    assert kept.type is None
    assert kept == members


@given(st.dictionaries(st.text().map(lambda name: f"x-{name}"), JSON, max_size=4))
def test_unknown_members_are_ignored(members: dict[str, Any]) -> None:
    known = {"type": "agentMessage", "id": "m", "text": "hello"}
    notice = decode(item({**known, **members}), ItemStartedNotification)
    assert notice.item == AgentMessageThreadItem(id="m", text="hello")


def test_an_unknown_input_inside_a_known_item() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "smell", "of": "roses"}]
    message = convert({"type": "userMessage", "id": "m", "content": content}, ThreadItem)
    assert isinstance(message, UserMessageThreadItem)
    assert isinstance(message.content[1], Unknown)
    assert json.loads(encode(message))["content"][1] == content[1]


def test_a_known_type_with_wrong_members_is_an_error_that_says_where() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"`int` - at `\$\.item\.id`"):
        decode(item({"type": "plan", "id": 5, "text": ""}), ItemStartedNotification)
    with pytest.raises(msgspec.ValidationError, match=r"`ThreadItem`, got another int - at `\$\.items\[0\]`"):
        decode(b'{"id": "u", "status": "completed", "items": [5]}', Turn)


def test_isinstance_sees_through_a_union() -> None:
    assert isinstance(AgentMessageThreadItem(id="m", text=""), ThreadItem)
    assert isinstance(UnknownItem(), ThreadItem)
    assert not isinstance(Unknown(), ThreadItem)
    assert not isinstance("plan", ThreadItem)


def test_unknown_words_are_kept_in_what_a_server_tells() -> None:
    turn = decode(b'{"id": "u", "status": "dreaming", "items": []}', Turn)
    assert turn.status == "dreaming"
    assert json.loads(encode(turn))["status"] == "dreaming"


@pytest.mark.parametrize("value", ["other", "neverHeardOf", {"neverHeardOf": {"a": 1}}, {"other": 1, "more": [2]}])
def test_error_infos_that_we_do_not_know(value: object) -> None:
    error = TurnError.model_validate({"message": "m", "codexErrorInfo": value})
    assert error.codex_error_info == value
    assert json.loads(encode(error))["codexErrorInfo"] == value


def test_error_infos_that_are_objects() -> None:
    info = convert({"httpConnectionFailed": {"httpStatusCode": 401}}, CodexErrorInfo)
    assert isinstance(info, HttpConnectionFailedCodexErrorInfo)
    assert info.root.http_connection_failed.http_status_code == 401


@pytest.mark.parametrize(
    "source",
    [
        "vscode",
        "moon",
        {"custom": "c"},
        {"subAgent": "review"},
        {"subAgent": "new"},
        {"subAgent": {"other": "o"}},
        {"subAgent": {"newer": 1}},
        {"newest": {}},
    ],
)
def test_sources_of_threads(source: object) -> None:
    assert json.loads(encode(convert(source, SessionSource))) == source


@pytest.mark.parametrize(
    ("struct", "params"),
    [
        (ThreadStartParams, {"approvalPolicy": "yes"}),
        (ThreadStartParams, {"approvalPolicy": {"whatever": {}}}),
        (ThreadStartParams, {"approvalsReviewer": "nobody"}),
        (ThreadStartParams, {"sandbox": "off"}),
        (TurnStartParams, {"threadId": "t", "input": [], "sandboxPolicy": {"type": "none"}}),
        (TurnStartParams, {"threadId": "t", "input": [], "sandboxPolicy": {}}),
        (TurnStartParams, {"threadId": "t", "input": [{"type": "smell"}]}),
        (TurnStartParams, {"threadId": "t", "input": [], "effort": ""}),
        (CommandExecutionRequestApprovalResponse, {}),
        (CommandExecutionRequestApprovalResponse, {"decision": "yes"}),
        (CommandExecutionRequestApprovalResponse, {"decision": None}),
        (CommandExecutionRequestApprovalResponse, {"decision": {}}),
        (CommandExecutionRequestApprovalResponse, {"decision": {"acceptAll": {}}}),
        (CommandExecutionRequestApprovalResponse, {"decision": {"acceptWithExecpolicyAmendment": {}}}),
        (SERVER_REQUESTS["item/fileChange/requestApproval"].result, {"decision": "acceptAll"}),
        (SERVER_REQUESTS["item/permissions/requestApproval"].result, {"permissions": {}, "scope": "always"}),
        (SERVER_REQUESTS["mcpServer/elicitation/request"].result, {"action": "maybe"}),
    ],
)
def test_what_a_server_acts_upon_is_closed(struct: type, params: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        convert(params, struct)


def test_a_decision_that_is_an_object() -> None:
    value = {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["git", "status"]}}}
    answer = CommandExecutionRequestApprovalResponse.model_validate(value)
    amendment = ExecpolicyAmendment(execpolicy_amendment=("git", "status"))
    assert answer.decision == AcceptWithExecpolicyAmendmentDecision(accept_with_execpolicy_amendment=amendment)
    assert json.loads(encode(answer)) == value


def test_decisions_on_offer_are_open() -> None:
    offered = ["accept", "acceptTwice", {"acceptWith": {}}]
    ids = {"threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1}
    params = CommandExecutionRequestApprovalParams.model_validate({**ids, "availableDecisions": offered})
    assert json.loads(encode(params))["availableDecisions"] == offered


def test_the_same_setting_is_closed_in_params_and_open_in_results() -> None:
    granular = {"granular": {"mcp_elicitations": True, "rules": True, "sandbox_approval": False}}
    asked = ThreadStartParams.model_validate({"approvalPolicy": granular})
    assert isinstance(asked.approval_policy, GranularAskForApproval)
    told = {"approvalsReviewer": "committee", "sandbox": {"type": "moat", "width": 3}, "approvalPolicy": "perhaps"}
    thread: dict[str, Any] = dict.fromkeys(
        ("id", "cliVersion", "cwd", "modelProvider", "preview", "sessionId", "source"), ""
    )
    thread |= {"createdAt": 1, "updatedAt": 1, "ephemeral": False, "projectId": None, "turns": []}
    thread["status"] = {"type": "asleep"}
    result = ThreadStartResponse.model_validate({**told, "cwd": "", "model": "", "modelProvider": "", "thread": thread})
    again = json.loads(encode(result))
    assert {name: again[name] for name in told} == told
    assert isinstance(result.thread, Thread)
    assert again["thread"]["status"] == {"type": "asleep"}


def test_unknown_methods_are_not_in_the_tables() -> None:
    for table in (METHODS, NOTIFICATIONS, SERVER_REQUESTS):
        assert "thread/levitate" not in table
        assert table.get("thread/levitate") is None
        with pytest.raises(KeyError):
            table["thread/levitate"]
