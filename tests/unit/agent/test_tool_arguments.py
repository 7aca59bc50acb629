"""What models write as arguments, and plans."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.agent import (
    MAX_STEPS,
    CreateGoalArguments,
    ExecCommandArguments,
    GetGoalArguments,
    UpdateGoalArguments,
    UpdatePlanArguments,
    WriteStdinArguments,
    plan_steps,
)
from treadle.errors import TreadleError
from treadle.protocol.app import TurnPlanStep
from treadle.tools import ToolInputError, parse_arguments


def test_members_that_are_left_out_have_defaults_and_unknown_ones_are_ignored() -> None:
    assert parse_arguments('{"cmd": "ls", "mood": 1}', ExecCommandArguments) == ExecCommandArguments(cmd="ls")
    assert parse_arguments('{"session_id": 5, "max_output_tokens": null}', WriteStdinArguments).chars == ""


def test_all_members_of_a_command() -> None:
    text = """{"cmd": "ls", "workdir": "/w", "shell": "/bin/sh", "login": false, "tty": true, "yield_time_ms": 5,
    "max_output_tokens": 7, "sandbox_permissions": "require_escalated", "justification": "j",
    "prefix_rule": ["a", "b"]}"""
    assert parse_arguments(text, ExecCommandArguments) == ExecCommandArguments(
        cmd="ls",
        workdir="/w",
        shell="/bin/sh",
        login=False,
        tty=True,
        yield_time_ms=5,
        max_output_tokens=7,
        sandbox_permissions="require_escalated",
        justification="j",
        prefix_rule=("a", "b"),
    )


def test_no_text_is_no_arguments() -> None:
    assert parse_arguments("", GetGoalArguments) == GetGoalArguments()


@pytest.mark.parametrize(
    ("text", "wanted", "told"),
    [
        ("", ExecCommandArguments, "`cmd`"),
        ("{", ExecCommandArguments, "truncated"),
        ("[]", ExecCommandArguments, "object"),
        ('{"cmd": 5}', ExecCommandArguments, "$.cmd"),
        ('{"cmd": "x", "yield_time_ms": -1}', ExecCommandArguments, "$.yield_time_ms"),
        ('{"cmd": "x", "sandbox_permissions": "all"}', ExecCommandArguments, "$.sandbox_permissions"),
        ('{"session_id": "x"}', WriteStdinArguments, "$.session_id"),
        ('{"objective": ""}', CreateGoalArguments, "$.objective"),
        ('{"status": "paused"}', UpdateGoalArguments, "$.status"),
        ('{"cmd": "\ud800"}', ExecCommandArguments, "failed"),
    ],
)
def test_bad_arguments_are_told_to_the_model(text: str, wanted: type[object], told: str) -> None:
    with pytest.raises(ToolInputError) as caught:
        parse_arguments(text, wanted)
    assert caught.value.message.startswith("failed to parse function arguments: ")
    assert told in caught.value.message
    assert isinstance(caught.value, TreadleError)


@given(st.text())
def test_any_text_is_refused_and_any_command_read(text: str) -> None:
    with pytest.raises(ToolInputError, match="failed to parse function arguments: "):
        parse_arguments(text, ExecCommandArguments)
    assert parse_arguments(json.dumps({"cmd": text}), ExecCommandArguments).cmd == text


# --- plans -----------------------------------------------------------------------------------------------------------


def _plan(*steps: tuple[str, str], **more: object) -> str:
    return json.dumps({"plan": [{"step": step, "status": status} for step, status in steps], **more})


def _steps(text: str) -> tuple[TurnPlanStep, ...]:
    return plan_steps(parse_arguments(text, UpdatePlanArguments))


def test_a_plan_in_the_words_of_the_protocol() -> None:
    assert _steps(_plan(("a", "completed"), ("b", "in_progress"), ("c", "pending"))) == (
        TurnPlanStep(step="a", status="completed"),
        TurnPlanStep(step="b", status="inProgress"),
        TurnPlanStep(step="c", status="pending"),
    )
    assert _steps(_plan()) == ()
    assert parse_arguments(_plan(explanation="why"), UpdatePlanArguments).explanation == "why"


@pytest.mark.parametrize("text", ["{}", "", '{"plan": [{"step": "a"}]}', _plan(("a", "done")), '{"plan": null}'])
def test_bad_plans(text: str) -> None:
    with pytest.raises(ToolInputError, match="failed to parse function arguments"):
        _steps(text)


def test_a_plan_has_an_end() -> None:
    assert len(_steps(_plan(*[("a", "pending")] * MAX_STEPS))) == MAX_STEPS
    with pytest.raises(ToolInputError, match="at most"):
        _steps(_plan(*[("a", "pending")] * (MAX_STEPS + 1)))
