"""The official SDK changes settings and answers approvals. The scenarios are in `scenarios/settings.py`."""

from __future__ import annotations

import pytest

from interop.interop_table import scenario_of
from interop.sdk.differences import DIFFERENCES, Server
from interop.sdk.interpreter import Play

pytestmark = pytest.mark.interop
scenario = scenario_of("Python SDK")


def test_approval_and_sandbox_settings_persist(play: Play, server: Server) -> None:
    seen = play("settings.approvals_persist")
    assert seen["fork"].pop() in DIFFERENCES["sandbox of a fork"].of(server)
    assert seen == {
        "start": ["never", "user", "workspaceWrite"],
        "plain turn": ["never", "user", "workspaceWrite"],
        "changed": ["on-request", "auto_review", "dangerFullAccess"],
        "plain again": ["on-request", "auto_review", "dangerFullAccess"],
        "fork": ["on-request", "auto_review"],
        "stricter fork": ["never", "auto_review", "readOnly"],
        "resumed": ["on-request", "auto_review", "dangerFullAccess"],
        "resumed stricter": ["never", "auto_review", "readOnly"],
        "turn after that": ["never", "auto_review", "readOnly"],
    }


@pytest.mark.parametrize(
    ("decision", "made", "status", "item", "answer"),
    [
        pytest.param("accepted", True, "completed", "completed", "So be it.", marks=scenario("approval: accept")),
        pytest.param("declined", False, "completed", "declined", "So be it.", marks=scenario("approval: decline")),
        pytest.param("cancelled", False, "interrupted", "declined", None, marks=scenario("approval: cancel")),
    ],
)
def test_a_command_waits_for_approval(
    play: Play, decision: str, made: bool, status: str, item: str, answer: str | None
) -> None:
    assert play(f"settings.{decision}") == {
        "policy": "on-request",
        "requests": ["item/commandExecution/requestApproval"],
        "about": [True, True, "call-1"],
        "command": [True, "because"],
        "resolved": 1,
        "flags": [[], ["waitingOnApproval"], [], None],
        "made": made,
        "status": status,
        "item": [item],
        "answer": answer,
    }


@scenario("approval: of a patch")
def test_a_patch_waits_for_approval(play: Play) -> None:
    assert play("settings.patch") == {
        "asked": ["call-1"],
        "item": ["completed", [["add", "hello\n"]]],
        "path": True,
        "text": "hello\n",
        "answer": "Patched.",
    }


def test_with_deny_all_nobody_is_asked(play: Play) -> None:
    assert play("settings.denied") == {"asked": [], "made": False, "answer": "Then not.", "told": True}


def test_a_thread_starts_with_instructions_and_a_model(play: Play) -> None:
    assert play("settings.started_with") == {
        "model": "gpt-5.4",
        "base": True,
        "developer": True,
        "reasoning": {"effort": "high", "summary": "detailed"},
        "source": "user",
    }


def test_settings_of_a_turn_stay_but_its_output_schema_does_not(play: Play) -> None:
    assert play("settings.turn_settings") == {
        "answer": '{"n": 1}',
        "format": ["json_schema", True],
        "later format": None,
        "models": ["gpt-5.4", "gpt-5.4"],
        "efforts": ["low", "low"],
        "summaries": ["detailed", "detailed"],
        "pwd": True,
    }


def test_options_of_newer_servers_are_accepted(play: Play) -> None:
    assert play("settings.sources") == ["completed", "a timer", "flex"]
