"""What hooks say, as it is read: the rules that were seen of the real program, and any bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.hooks import EVENTS, REFUSING, TAKES, HookOutcome, HookResult, closed, failed, outcome_of, read_output

SPECIFIC = "hookSpecificOutput"


def _read(event: str, output: object = "", code: int = 0, stderr: str = "") -> HookOutcome:
    text = output if isinstance(output, str) else json.dumps(output)
    return read_output(event, code, text.encode(), stderr.encode())


def _seen(outcome: HookOutcome) -> tuple[str, list[tuple[str, str]]]:
    return outcome.status, [(entry.kind, entry.text) for entry in outcome.entries]


RECORDED: list[tuple[str, Any, int, str, str, list[tuple[str, str]]]] = [
    # event, stdout, exit code, stderr, status, entries
    ("PreToolUse", "", 0, "", "completed", []),
    ("PreToolUse", "some text", 0, "", "completed", []),
    ("PreToolUse", "", 1, "why", "failed", [("error", "hook exited with code 1")]),
    ("PreToolUse", "", 2, "blocked by rc2\n", "blocked", [("feedback", "blocked by rc2")]),
    (
        "PreToolUse",
        "",
        2,
        " ",
        "failed",
        [("error", "PreToolUse hook exited with code 2 but did not write a blocking reason to stderr")],
    ),
    ("PreToolUse", '{"x": ', 0, "", "failed", [("error", "hook returned invalid pre-tool-use JSON output")]),
    ("PreToolUse", {"other": 1}, 0, "", "failed", [("error", "hook returned invalid pre-tool-use JSON output")]),
    (
        "PreToolUse",
        {"continue": False},
        0,
        "",
        "failed",
        [("error", "PreToolUse hook returned unsupported continue:false")],
    ),
    (
        "PreToolUse",
        {SPECIFIC: {"hookEventName": "PreToolUse", "permissionDecision": "ask"}},
        0,
        "",
        "failed",
        [("error", "PreToolUse hook returned unsupported permissionDecision:ask")],
    ),
    ("PreToolUse", {"decision": "block", "reason": "legacy no"}, 0, "", "blocked", [("feedback", "legacy no")]),
    (
        "PreToolUse",
        {"systemMessage": "sysmsg", SPECIFIC: {"hookEventName": "PreToolUse", "additionalContext": "CTX-PRE"}},
        0,
        "",
        "completed",
        [("warning", "sysmsg"), ("context", "CTX-PRE")],
    ),
    (
        "PostToolUse",
        {SPECIFIC: {"hookEventName": "PostToolUse", "updatedMCPToolOutput": {}}},
        0,
        "",
        "failed",
        [("error", "PostToolUse hook returned unsupported updatedMCPToolOutput")],
    ),
    ("PostToolUse", {"continue": False, "stopReason": "halt now"}, 0, "", "stopped", [("stop", "halt now")]),
    ("UserPromptSubmit", "plain context", 0, "", "completed", [("context", "plain context")]),
    ("UserPromptSubmit", {"decision": "block", "reason": "no"}, 0, "", "blocked", [("feedback", "no")]),
    ("SessionStart", "plain ss context\n", 0, "", "completed", [("context", "plain ss context")]),
    ("SessionStart", {"continue": False, "stopReason": "stopped by ss"}, 0, "", "stopped", [("stop", "stopped by ss")]),
    ("Stop", {"decision": "block", "reason": "go on please"}, 0, "", "blocked", [("feedback", "go on please")]),
    ("Stop", {"continue": False, "stopReason": "end"}, 0, "", "stopped", [("stop", "end")]),
    ("Stop", "", 2, "continue via rc2", "blocked", [("feedback", "continue via rc2")]),
    (
        "PermissionRequest",
        {SPECIFIC: {"hookEventName": "PermissionRequest", "decision": {"behavior": "deny", "message": "hook says no"}}},
        0,
        "",
        "blocked",
        [("feedback", "hook says no")],
    ),
    (
        "PermissionRequest",
        {SPECIFIC: {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}},
        0,
        "",
        "completed",
        [],
    ),
    ("PermissionRequest", "", 2, "perm rc2", "blocked", [("feedback", "perm rc2")]),
    ("PreModelRequest", {"decision": "block", "reason": "x"}, 0, "", "completed", []),
    ("PostModelRequest", {"continue": False}, 0, "", "completed", []),
    ("PostModelRequest", "", 2, "mr rc2", "failed", [("error", "mr rc2")]),
    (
        "PreCompact",
        {"decision": "block", "reason": "x"},
        0,
        "",
        "failed",
        [("error", "hook returned invalid PreCompact hook JSON output")],
    ),
    ("PreCompact", "", 2, "mr rc2", "failed", [("error", "mr rc2")]),
    ("PreCompact", {"continue": False, "stopReason": "mr stop"}, 0, "", "stopped", [("stop", "mr stop")]),
]


@pytest.mark.parametrize(("event", "output", "code", "stderr", "status", "entries"), RECORDED)
def test_as_the_real_one(
    event: str, output: object, code: int, stderr: str, status: str, entries: list[tuple[str, str]]
) -> None:
    assert _seen(_read(event, output, code, stderr)) == (status, entries)


def test_what_it_decides() -> None:
    deny = {SPECIFIC: {"permissionDecision": "deny", "permissionDecisionReason": "no"}}
    assert _read("PreToolUse", deny).result == HookResult(block="no")
    allow = {SPECIFIC: {"permissionDecision": "allow", "updatedInput": {"command": "x"}}}
    assert _read("PreToolUse", allow).result == HookResult(updated_input={"command": "x"})
    yes = {SPECIFIC: {"decision": {"behavior": "allow"}}}
    assert _read("PermissionRequest", yes).result == HookResult(allow=True)


@pytest.mark.parametrize(
    ("event", "output"),
    [
        ("PreToolUse", {SPECIFIC: {"hookEventName": "PostToolUse"}}),
        ("PreToolUse", {SPECIFIC: {"permissionDecision": "deny"}}),
        ("PreToolUse", {SPECIFIC: {"updatedInput": {}}}),
        ("PreToolUse", {SPECIFIC: {"decision": {"behavior": "allow"}}}),
        ("PreToolUse", {"decision": "approve"}),
        ("PreToolUse", {"suppressOutput": True}),
        ("PermissionRequest", {SPECIFIC: {"decision": {"behavior": "allow", "updatedInput": {}}}}),
        ("PermissionRequest", {SPECIFIC: {"decision": {"behavior": "allow", "interrupt": True}}}),
        ("PermissionRequest", {SPECIFIC: {"decision": {"behavior": "ask"}}}),
        ("PermissionRequest", {"decision": "block", "reason": "x"}),
        ("Stop", {"decision": "block"}),
        ("SessionEnd", {"continue": False}),
        ("UserPromptSubmit", []),
    ],
)
def test_what_is_not_taken_decides_nothing(event: str, output: object) -> None:
    outcome = _read(event, output)
    assert outcome.status == "failed"
    assert outcome.error
    assert outcome.result == HookResult()


def test_a_failure_can_be_a_refusal() -> None:
    outcome = closed(failed("hook timed out after 1s"), "check.sh")
    assert outcome.status == "failed"
    assert "`check.sh` failed (hook timed out after 1s)" in (outcome.result.block or "")


@pytest.mark.parametrize("event", EVENTS)
def test_a_function_is_held_to_the_same(event: str) -> None:
    given: dict[str, Any] = {"block": "b", "allow": True, "updated_input": {}, "context": "c", "stop": "s"}
    for name, value in given.items():
        outcome = outcome_of(event, HookResult(**{name: value}))
        assert (outcome.status != "failed") is (name in TAKES.get(event, ()))
    assert event not in REFUSING or "block" in TAKES[event]


_WORDS = st.sampled_from(
    [
        *("continue", "stopReason", "suppressOutput", "systemMessage", "decision", "reason", "hookSpecificOutput"),
        *("hookEventName", "additionalContext", "permissionDecision", "permissionDecisionReason", "updatedInput"),
        *("behavior", "message", "x"),
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.sampled_from(list(EVENTS)),
    st.integers(-1, 255),
    st.binary(max_size=60) | _JSON.map(json.dumps).map(str.encode),
    st.binary(max_size=20),
)
def test_any_output_is_an_outcome(event: str, code: int, stdout: bytes, stderr: bytes) -> None:
    outcome = read_output(event, code, stdout, stderr)
    assert (outcome.error is not None) is (outcome.status == "failed")
    if outcome.status == "failed":
        assert outcome.result == HookResult()
    said = outcome.result
    for name in ("block", "allow", "updated_input", "context", "stop"):
        assert getattr(said, name) in (None, False) or name in TAKES[event]


def test_json_that_is_too_deep() -> None:
    assert _read("Stop", '{"hookSpecificOutput":' + "[" * 100_000).status == "failed"
