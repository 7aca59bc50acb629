"""Words are members of enums where a client is told them, and plain strings where a server acts upon them."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocol.app import (
    METHODS,
    SERVER_REQUESTS,
    AskForApprovalValue,
    CommandExecutionSource,
    CommandExecutionThreadItem,
    ConfigValueWriteParams,
    GranularAskForApproval,
    MergeStrategy,
    MessagePhase,
    PlanType,
    ReasoningEffort,
    ReviewStartParams,
    SandboxMode,
    ThreadListParams,
    ThreadSettings,
    ThreadStartParams,
    Turn,
    TurnItemsView,
    TurnStartParams,
    TurnStatus,
    Word,
    convert,
    decode,
    encode,
)
from unit.protocol.app_samples import structs
from unit.protocol.app_words import words

WORDS = words()
SETTINGS: dict[str, Any] = {
    "approvalsReviewer": "user",
    "collaborationMode": {"mode": "plan", "settings": {"model": "m"}},
    "cwd": "/",
    "model": "m",
    "modelProvider": "p",
    "sandboxPolicy": {"type": "readOnly"},
}


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.__name__)
def test_a_known_word_is_read_as_its_member_and_an_unknown_one_as_a_member_that_is_not_listed(word: type[Word]) -> None:
    for member in word:
        assert decode(encode(member.value), word) is member
        assert convert(member.value, word) is member
        assert encode(member) == encode(member.value)
        assert member == member.value == str(member)
    before = dict(word.__members__), len(word._value2member_map_)
    unknown = decode(b'"never heard of"', word)
    assert isinstance(unknown, word)
    assert unknown.name == unknown.value == "never heard of"
    assert unknown not in list(word)
    assert (dict(word.__members__), len(word._value2member_map_)) == before


@given(st.text())
def test_an_unknown_word_is_as_good_as_its_string(text: str) -> None:
    word = decode(msgspec.json.encode(text), TurnStatus)
    assert word == text
    assert {text: 1}[word] == 1
    assert f"{word}" == text
    assert encode(word) == encode(text)
    assert word == TurnStatus(text) == copy.deepcopy(word) == pickle.loads(pickle.dumps(word))


def test_what_is_no_string_is_no_word() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^Expected `str`, got `int` - at `\$\.status`$"):
        decode(b'{"id": "u", "status": 5, "items": []}', Turn)
    with pytest.raises(ValueError, match="5 is not a valid TurnStatus"):
        TurnStatus(5)  # type: ignore[arg-type]


def test_told_words_are_members() -> None:
    turn = decode(b'{"id": "u", "status": "inProgress", "items": []}', Turn)
    assert turn.status is TurnStatus.in_progress
    assert turn.items_view is TurnItemsView.full
    item = {"type": "agentMessage", "id": "m", "text": "", "phase": "final_answer"}
    turn = Turn.model_validate({"id": "u", "status": "completed", "items": [item]})
    assert turn.model_dump()["items"][0]["phase"] is MessagePhase.final_answer.value


def test_words_that_are_left_out_are_members_too() -> None:
    defaults = [
        (struct.__name__, field.name, field.default)
        for struct in structs()
        for field in msgspec.structs.fields(struct)
        if isinstance(field.type, type) and issubclass(field.type, Word) and not field.required
    ]
    assert ("CommandExecutionThreadItem", "source", CommandExecutionSource.agent) in defaults
    assert [each for each in defaults if not isinstance(each[2], Word)] == []


def test_a_struct_may_be_made_of_strings_or_of_members() -> None:
    members: dict[str, Any] = {"id": "c", "command": "ls", "command_actions": (), "cwd": "/"}
    by_word = CommandExecutionThreadItem(**members, status="inProgress")
    by_member = CommandExecutionThreadItem.model_validate(by_word.model_dump(by_alias=True))
    assert by_word == by_member
    assert encode(by_word) == encode(by_member)


def test_a_dump_has_plain_strings() -> None:
    turn = decode(b'{"id": "u", "status": "dreaming", "items": []}', Turn)
    assert type(turn.status) is TurnStatus
    assert {type(value) for value in turn.model_dump(exclude_none=True).values()} == {str, list}


@pytest.mark.parametrize(
    ("struct", "params", "text"),
    [
        (ThreadStartParams, {"approvalsReviewer": "nobody"}, "Invalid enum value 'nobody' - at `$.approvalsReviewer`"),
        (ThreadStartParams, {"approvalPolicy": "yes"}, "Invalid enum value 'yes' - at `$.approvalPolicy`"),
        (ThreadStartParams, {"sandbox": "off"}, "Invalid enum value 'off' - at `$.sandbox`"),
        (ThreadStartParams, {"sandbox": 1}, "Expected `str | null`, got `int` - at `$.sandbox`"),
        (ThreadListParams, {"sourceKinds": ["cli", "moon"]}, "Invalid enum value 'moon' - at `$.sourceKinds[1]`"),
        (
            ReviewStartParams,
            {"threadId": "t", "target": {"type": "uncommittedChanges"}, "delivery": "later"},
            "Invalid enum value 'later' - at `$.delivery`",
        ),
        (
            TurnStartParams,
            {"threadId": "t", "input": [], "effort": ""},
            "Expected `str` of length >= 1 - at `$.effort`",
        ),
    ],
)
def test_closed_words_are_refused(struct: type, params: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as of_json:
        decode(json.dumps(params).encode(), struct)
    with pytest.raises(msgspec.ValidationError) as of_values:
        convert(params, struct)
    assert str(of_json.value) == str(of_values.value) == text


def test_a_server_sees_plain_strings() -> None:
    raw = b'{"sandbox": "read-only", "approvalPolicy": "never", "personality": "none", "threadSource": "user"}'
    asked = decode(raw, ThreadStartParams)
    for value in (asked.sandbox, asked.approval_policy, asked.personality, asked.thread_source):
        assert type(value) is str
    effort = decode(b'{"threadId": "t", "input": [], "effort": "colossal"}', TurnStartParams).effort
    assert (type(effort), effort) == (str, "colossal")


def test_no_word_is_in_what_a_server_acts_upon() -> None:
    methods = [*(method.params for method in METHODS.values()), *(each.result for each in SERVER_REQUESTS.values())]
    for wanted in methods:
        assert "EnumType" not in repr(msgspec.inspect.type_info(wanted))


def test_a_client_may_ask_with_members() -> None:
    asked = ThreadStartParams(sandbox=SandboxMode.read_only, approval_policy=AskForApprovalValue.on_request)
    assert json.loads(encode(asked)) == {"sandbox": "read-only", "approvalPolicy": "on-request"}
    assert ThreadStartParams.model_validate({"sandbox": SandboxMode.read_only}).sandbox == "read-only"
    edit = ConfigValueWriteParams(key_path="k", merge_strategy=MergeStrategy.replace, value=1)
    assert json.loads(encode(edit))["mergeStrategy"] == "replace"


def test_words_and_structs_in_one_union() -> None:
    never = ThreadSettings.model_validate({**SETTINGS, "approvalPolicy": "never", "effort": "high"})
    assert never.approval_policy is AskForApprovalValue.never
    assert never.approval_policy.root is AskForApprovalValue.never
    assert never.effort is ReasoningEffort.high
    newer = ThreadSettings.model_validate({**SETTINGS, "approvalPolicy": "perhaps", "effort": "colossal"})
    assert type(newer.approval_policy) is AskForApprovalValue
    assert (newer.approval_policy, newer.effort) == ("perhaps", "colossal")
    granular = {"granular": {"mcp_elicitations": True, "rules": True, "sandbox_approval": False}}
    policy = ThreadSettings.model_validate({**SETTINGS, "approvalPolicy": granular}).approval_policy
    assert isinstance(policy, GranularAskForApproval)


def test_what_the_real_server_has_added_since() -> None:
    assert PlanType("sci_plus") is PlanType.sci_plus
