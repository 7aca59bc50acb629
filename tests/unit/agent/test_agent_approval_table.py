"""The table of policies, and how answers are read: what is not clearly a yes is a no."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from treadle.agent import Risk, decide, is_reviewed, read_decision, refusal
from treadle.errors import RpcError
from treadle.protocol.app import (
    AskForApproval,
    CommandExecutionRequestApprovalResponse,
    FileChangeRequestApprovalResponse,
    convert,
)
from unit.agent.bare_thread import settings

GRANULAR = {"sandbox_approval": True, "rules": True, "mcp_elicitations": True}
# policy, untrusted, beyond -> decision
TABLE = [
    ("never", False, False, "allow"),
    ("never", True, False, "allow"),
    ("never", False, True, "refuse"),
    ("never", True, True, "refuse"),
    ("on-request", False, False, "allow"),
    ("on-request", True, False, "allow"),
    ("on-request", False, True, "ask"),
    ("on-request", True, True, "ask"),
    ("untrusted", False, False, "allow"),
    ("untrusted", True, False, "ask"),
    ("untrusted", False, True, "ask"),
    ("untrusted", True, True, "ask"),
    ({"granular": GRANULAR}, True, False, "allow"),
    ({"granular": GRANULAR}, True, True, "ask"),
    ({"granular": {**GRANULAR, "sandbox_approval": False}}, True, False, "allow"),
    ({"granular": {**GRANULAR, "sandbox_approval": False}}, True, True, "refuse"),
]


@pytest.mark.parametrize(("policy", "untrusted", "beyond", "expected"), TABLE)
def test_what_a_policy_says(policy: Any, untrusted: bool, beyond: bool, expected: str) -> None:
    given = settings(approval_policy=convert(policy, AskForApproval))
    assert decide(given, Risk(untrusted, beyond)) == expected


@pytest.mark.parametrize("wanted", [CommandExecutionRequestApprovalResponse, FileChangeRequestApprovalResponse])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"decision": "accept"}, "accept"),
        ({"decision": "acceptForSession"}, "acceptForSession"),
        ({"decision": "decline"}, "decline"),
        ({"decision": "cancel"}, "cancel"),
        ({"decision": "ACCEPT"}, "failed"),
        ({"decision": None}, "failed"),
        ({"decision": True}, "failed"),
        ({}, "failed"),
        ([], "failed"),
        ("accept", "failed"),
        (None, "failed"),
    ],
)
def test_how_an_answer_is_read(answer: Any, expected: str, wanted: type[Any]) -> None:
    assert read_decision(Raw(json.dumps(answer).encode()), wanted) == expected


def test_an_error_and_rubbish_are_no() -> None:
    assert read_decision(RpcError(1, "x"), CommandExecutionRequestApprovalResponse) == "failed"
    assert read_decision(Raw(b"{"), CommandExecutionRequestApprovalResponse) == "failed"


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["ls"]}}, "acceptForSession"),
        (
            {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "example.org", "action": "allow"}}},
            "decline",
        ),
    ],
)
def test_rules_for_later_are_read_with_care(decision: Any, expected: str) -> None:
    answer = Raw(json.dumps({"decision": decision}).encode())
    assert read_decision(answer, CommandExecutionRequestApprovalResponse) == expected


def test_the_model_is_told_why() -> None:
    assert "approval policy is never" in refusal(settings())
    granular = convert({"granular": GRANULAR}, AskForApproval)
    assert "approval policy is granular" in refusal(settings(approval_policy=granular))


@pytest.mark.parametrize(
    ("policy", "reviewer", "reviewed"),
    [
        ("on-request", "user", False),
        ("on-request", "auto_review", True),
        ({"granular": GRANULAR}, "auto_review", True),
        ("untrusted", "auto_review", False),  # whoever trusts no command wants to see them all
    ],
)
def test_when_a_reviewer_is_asked_before_the_user(policy: Any, reviewer: str, reviewed: bool) -> None:
    given = settings(approval_policy=convert(policy, AskForApproval), approvals_reviewer=reviewer)
    assert is_reviewed(given) is reviewed
