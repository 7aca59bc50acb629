"""When somebody is asked before a tool of an MCP server runs, and what an answer means."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from treadle.agent import needs_approval, read_answer
from treadle.config import ApprovalMode
from treadle.errors import RpcError
from treadle.mcp import ToolAnnotations
from treadle.protocol.app import McpServerElicitationRequestResponse

READS = ToolAnnotations(read_only_hint=True)
WRITES = ToolAnnotations(read_only_hint=False)
DESTROYS = ToolAnnotations(destructive_hint=True)
LIES = ToolAnnotations(read_only_hint=True, destructive_hint=True)
MILD = ToolAnnotations(destructive_hint=False)
CLOSED = ToolAnnotations(destructive_hint=False, open_world_hint=False)
OPEN = ToolAnnotations(destructive_hint=False, open_world_hint=True)


@pytest.mark.parametrize(
    ("hints", "auto", "writes"),
    [
        (None, True, True),
        (READS, False, False),
        (WRITES, True, True),
        (DESTROYS, True, True),
        (LIES, True, False),
        (MILD, True, True),
        (CLOSED, False, True),
        (OPEN, True, True),
    ],
)
def test_what_is_asked_for(hints: ToolAnnotations | None, auto: bool, writes: bool) -> None:
    modes: dict[ApprovalMode, bool] = {"auto": auto, "writes": writes, "prompt": True, "approve": False}
    assert {mode: needs_approval(mode, hints) for mode in modes} == modes


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"action": "accept"}, "accept"),
        ({"action": "accept", "content": {}, "_meta": None}, "accept"),
        ({"action": "accept", "_meta": {"persist": "session"}}, "acceptForSession"),
        ({"action": "accept", "_meta": {"persist": "always"}}, "acceptAlways"),
        ({"action": "accept", "_meta": {"persist": ["always"]}}, "accept"),
        ({"action": "accept", "_meta": "always"}, "accept"),
        ({"action": "decline", "_meta": {"persist": "always"}}, "decline"),
        ({"action": "cancel"}, "cancel"),
        ({}, "failed"),
        ({"action": "yes"}, "failed"),
        ([], "failed"),
    ],
)
def test_what_an_answer_means(answer: object, decision: str) -> None:
    assert read_answer(Raw(json.dumps(answer).encode()), McpServerElicitationRequestResponse) == decision


def test_an_error_or_something_else_is_no_yes() -> None:
    assert read_answer(RpcError(1, "x"), McpServerElicitationRequestResponse) == "failed"
    assert read_answer(Raw(b"{"), McpServerElicitationRequestResponse) == "failed"
