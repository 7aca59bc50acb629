"""Notifications as events, and requests of the server as questions."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.client import command_request, elicitation_request, make, patch_request, permissions_request
from treadle.host import (
    Compacted,
    Delta,
    ItemCompleted,
    ItemStarted,
    Notice,
    SignOfLife,
    TurnEnded,
    UsageReported,
    ask_of,
    decision_of,
    events_of,
)
from treadle.protocol.app import (
    CommandExecutionRequestApprovalParams,
    FileChangeRequestApprovalParams,
    FileUpdateChange,
    McpServerElicitationRequestParams,
    PermissionsRequestApprovalParams,
    convert,
)

IDS = {"threadId": "t", "turnId": "u"}


def events(method: str, **params: Any) -> tuple[Any, ...]:
    return events_of(make(method, {**IDS, **params}))


@pytest.mark.parametrize(
    ("method", "more", "kind"),
    [
        ("item/agentMessage/delta", {}, "text"),
        ("item/reasoning/textDelta", {"contentIndex": 0}, "reasoning"),
        ("item/reasoning/summaryTextDelta", {"summaryIndex": 0}, "reasoning"),
        ("item/commandExecution/outputDelta", {}, "output"),
    ],
)
def test_pieces(method: str, more: dict[str, Any], kind: Any) -> None:
    assert events(method, itemId="i", delta="x", **more) == (Delta("i", "x", kind),)


def test_items() -> None:
    item = {"type": "agentMessage", "id": "i", "text": "x"}
    (started,) = events("item/started", item=item, startedAtMs=1)
    (done,) = events("item/completed", item=item, completedAtMs=1)
    assert isinstance(started, ItemStarted)
    assert isinstance(done, ItemCompleted)
    compaction = events("item/completed", item={"type": "contextCompaction", "id": "i"}, completedAtMs=1)
    assert compaction[1] == Compacted()
    assert events("thread/compacted") == (Compacted(),)


def test_usage_is_that_of_the_thread() -> None:
    def tokens(n: int) -> dict[str, int]:
        parts = {"cachedInputTokens": n, "inputTokens": 2 * n, "outputTokens": n, "reasoningOutputTokens": 1}
        return {**parts, "totalTokens": 3 * n}

    told = {"last": tokens(1), "total": tokens(10), "modelContextWindow": 1000}
    (found,) = events("thread/tokenUsage/updated", tokenUsage=told)
    assert isinstance(found, UsageReported)
    assert (found.total.input_tokens, found.total.cached_input_tokens, found.total.total_tokens) == (20, 10, 30)
    assert (found.total.context_tokens, found.total.context_window) == (3, 1000)


def test_the_end() -> None:
    def end(status: str, **turn: Any) -> Any:
        (found,) = events("turn/completed", turn={"id": "u", "items": [], "status": status, **turn})
        return found

    assert end("completed") == TurnEnded("completed")
    assert end("interrupted") == TurnEnded("interrupted")
    failed = end("failed", error={"message": "no", "codexErrorInfo": "unauthorized"})
    assert (failed.status, failed.fault.kind) == ("failed", "auth")
    assert end("somethingNew").status == "failed"
    (unread,) = events_of(make("turn/completed", {"turn": {"id": "u", "status": "completed"}}))
    assert unread == TurnEnded("completed")  # without its items it is not what we know


def test_a_problem_that_is_tried_again_is_told() -> None:
    error = {"message": "lost", "codexErrorInfo": "serverOverloaded"}
    (told,) = events("error", error=error, willRetry=True)
    assert isinstance(told, Notice)
    assert told.fault is not None
    assert told.fault.kind == "overloaded"
    assert not isinstance(events("error", error=error, willRetry=False)[0], Notice)


@pytest.mark.parametrize("method", ["turn/diff/updated", "item/new/thing", "turn/new"])
def test_everything_is_a_sign_of_life(method: str) -> None:
    assert events(method, diff="x") == (SignOfLife(),)


# --- questions -------------------------------------------------------------------------------------------------------

ASKED = {**IDS, "itemId": "i", "startedAtMs": 1}


def test_a_command_and_the_network() -> None:
    params = {**ASKED, "command": "/bin/bash -lc 'ls'", "cwd": "/w", "reason": "to see"}
    ask = ask_of(command_request(convert(params, CommandExecutionRequestApprovalParams)))
    assert (ask.kind, ask.title, ask.description) == ("command", "ls", "in /w; to see")
    network = {**params, "networkApprovalContext": {"host": "example.org", "protocol": "https"}}
    ask = ask_of(command_request(convert(network, CommandExecutionRequestApprovalParams)))
    assert (ask.kind, ask.title, ask.command) == ("network", "network access to example.org (https)", "ls")


def test_a_patch() -> None:
    kinds = ["update", "update", "add", "delete"]
    changes = tuple(
        convert({"path": name, "diff": "", "kind": {"type": kind}}, FileUpdateChange)
        for name, kind in zip("abcd", kinds, strict=True)
    )
    params = convert({**ASKED, "grantRoot": "/w", "reason": "better"}, FileChangeRequestApprovalParams)
    ask = ask_of(patch_request(params, changes))
    assert ask.title == "apply_patch: 2 updated, 1 added, 1 deleted: a, b, c, +1 more"
    assert ask.description == "this also allows writing anywhere in /w; better"
    assert ask.paths == ("a", "b", "c", "d")


def test_permissions() -> None:
    params = {**ASKED, "cwd": "/w", "permissions": {"network": {"enabled": True}}}
    ask = ask_of(permissions_request(convert(params, PermissionsRequestApprovalParams)))
    assert ask.kind == "permissions"
    assert "network" in ask.title


def _elicited(message: str, kind: str) -> Any:
    meta = {"codex_approval_kind": kind, "tool_params": {"text": "v"}}
    params = {**IDS, "serverName": "probe", "mode": "form", "message": message, "_meta": meta}
    return elicitation_request(convert(params, McpServerElicitationRequestParams))


def test_a_tool_of_an_mcp_server() -> None:
    # A name is whatever the server likes.
    request = _elicited('Allow the probe MCP server to run tool "write" it"?', "mcp_tool_call")
    assert (request.kind, request.server, request.tool, request.arguments) == (
        *("tool", "probe", 'write" it'),
        {"text": "v"},
    )
    ask = ask_of(request)
    assert (ask.kind, ask.tool, ask.title) == ("tool", 'probe/write" it', 'the tool probe/write" it')
    assert ask.description == 'the MCP server probe is called with {"text":"v"}'
    other = ask_of(_elicited("Allow it?", "mcp_tool_call"))  # in words that are not known here
    assert (other.kind, other.tool, other.title) == ("tool", None, "Allow it?")


def test_an_mcp_server_that_wants_to_ask_the_model() -> None:
    request = _elicited("Allow the probe MCP server to ask the model?", "mcp_sampling")
    assert (request.kind, request.tool) == ("sampling", None)
    assert ask_of(request).title == "Allow the probe MCP server to ask the model?"


def test_answers() -> None:
    assert [decision_of(choice) for choice in ("once", "session", "deny")] == ["accept", "acceptForSession", "decline"]
    assert decision_of("nonsense") == "decline"  # type: ignore[arg-type]
