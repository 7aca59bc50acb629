"""MCP servers and their calls on a terminal and in a pipe: starts, progress, results, and questions about calls."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from msgspec import json
from rich.console import Console

from treadle.cli import PlainTurn, Question, TurnRenderer, approval_question
from treadle.pages import Picture, ToolBlock, item_blocks
from treadle.protocol.app import (
    ItemCompletedNotification,
    ItemStartedNotification,
    McpServerElicitationRequestParams,
    McpServerStatusUpdatedNotification,
    McpToolCallError,
    McpToolCallProgressNotification,
    McpToolCallResult,
    McpToolCallThreadItem,
    encode,
)

EVIL = "\x1b[2J\x1b]52;c;aGk=\x07"


def call(status: str, **more: Any) -> McpToolCallThreadItem:
    return McpToolCallThreadItem(id="i", server="mill", tool="grind", arguments={"a": 1}, status=status, **more)


def server(status: str, error: str | None = None, name: str = "mill") -> McpServerStatusUpdatedNotification:
    return McpServerStatusUpdatedNotification(name=name, status=status, thread_id="t", error=error)


def result(*content: Any, structured: Any = None) -> McpToolCallResult:
    return McpToolCallResult(content=content, structured_content=structured)


FAILED = "MCP client for `mill` failed to start:\nno such file"
BEGUN = ItemStartedNotification(thread_id="t", turn_id="u", item=call("inProgress"), started_at_ms=0)


def ended(item: McpToolCallThreadItem) -> ItemCompletedNotification:
    return ItemCompletedNotification(thread_id="t", turn_id="u", item=item, completed_at_ms=0)


def progress(message: str) -> McpToolCallProgressNotification:
    return McpToolCallProgressNotification(thread_id="t", turn_id="u", item_id="i", message=message)


class Live:
    def __init__(self) -> None:
        self._file = StringIO()
        self._console = Console(file=self._file, width=80, highlight=False, markup=False, emoji=False)
        self.turn = TurnRenderer(0.0)

    def show(self, method: str, params: Any) -> str:
        """What stays."""
        before = len(self._file.getvalue())
        for block in self.turn.show(method, params, 1.0):
            self._console.print(block)
        return self._file.getvalue()[before:]

    @property
    def now(self) -> list[str]:
        """The lines of now, without the last one, which has the time."""
        return [line.plain for line in self.turn.live(1.0, 80, 24)][:-1]


# --- on a terminal ---------------------------------------------------------------------------------------------------


def test_a_server_is_shown_while_it_starts_and_how_that_ended() -> None:
    live = Live()
    for name in ("mill", "loom"):
        assert live.show("mcpServer/startupStatus/updated", server("starting", name=name)) == ""
    assert live.now == ["▸ MCP server mill · is starting", "▸ MCP server loom · is starting"]
    assert live.show("mcpServer/startupStatus/updated", server("ready")) == "✓ MCP server mill\n"
    assert live.show("mcpServer/startupStatus/updated", server("cancelled", name="loom")) == ""
    assert live.now == []
    shown = live.show("mcpServer/startupStatus/updated", server("failed", FAILED))
    assert shown == "✗ MCP server mill · failed: MCP client for `mill` failed to start: no such file\n"


def test_a_call_is_shown_with_what_it_says_of_its_progress() -> None:
    live = Live()
    live.show("item/mcpToolCall/progress", progress("before it was begun"))
    live.show("item/started", BEGUN)
    assert live.now == ["▸ mill.grind"]
    live.show("item/mcpToolCall/progress", progress(f"2 of 3{EVIL}"))
    assert live.now[0].startswith("▸ mill.grind · 2 of 3")
    assert "\x1b" not in live.now[0]
    assert live.show("item/completed", ended(call("completed", result=result()))) == "✓ mill.grind\n"
    assert live.now == []
    failed = ended(call("failed", error=McpToolCallError(message="the stones\nare worn")))
    assert live.show("item/completed", failed) == "✗ mill.grind · failed: the stones are worn\n"


# --- in a pipe -------------------------------------------------------------------------------------------------------


def plain(method: str, params: Any) -> str:
    written: list[str] = []
    PlainTurn(written.append, color=False).show(method, params)
    return "".join(written)


def test_plain_lines_say_how_a_start_or_a_call_ended() -> None:
    assert plain("mcpServer/startupStatus/updated", server("starting")) == ""
    assert plain("mcpServer/startupStatus/updated", server("ready")) == "MCP server mill: ready\n"
    failed = plain("mcpServer/startupStatus/updated", server("failed", FAILED + EVIL))
    assert failed.startswith("MCP server mill: failed: MCP client for `mill` failed to start: no such file")
    assert "\x1b" not in failed
    assert plain("item/completed", ended(call("completed", result=result()))) == "mill.grind: completed\n"
    error = ended(call("failed", error=McpToolCallError(message="the stones\nare worn")))
    assert plain("item/completed", error) == "mill.grind: failed: the stones are worn\n"


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (result({"type": "text", "text": "a"}, {"type": "text", "text": "b"}), "a\nb"),
        (result(structured={"n": 1}), '{"n": 1}'),
        (result({"type": "text", "text": "a"}, structured={"n": 1}), "a"),
        (result({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}), "(audio)"),
        (result({"type": "resource_link", "uri": "probe://one", "name": "one"}), "probe://one"),
        (result({"type": "resource", "resource": {"uri": "probe://one", "text": "the text"}}), "the text"),
        (result({"type": "resource", "resource": {"uri": "probe://one", "blob": "AAAA"}}), "probe://one"),
        (result({"odd": 1}, 3, None), ""),
        (result(), ""),
    ],
)
def test_the_result_of_a_call_is_its_texts(given: McpToolCallResult, text: str) -> None:
    [block] = item_blocks(call("completed", result=given))
    assert isinstance(block, ToolBlock)
    assert (json.decode(block.result) if text.startswith("{") else block.result) == (
        json.decode(text) if text.startswith("{") else text
    )
    assert block.pictures == ()


def test_a_picture_is_a_picture_and_no_text() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    [block] = item_blocks(call("completed", result=result(image, {"type": "text", "text": "a mill"})))
    assert isinstance(block, ToolBlock)
    assert (block.result, block.pictures) == ("a mill", (Picture(url="data:image/png;base64,AAAA"),))


# --- questions -------------------------------------------------------------------------------------------------------


def asked(**meta: Any) -> Question:
    params = McpServerElicitationRequestParams(
        thread_id="t",
        server_name="mill",
        mode="form",
        message='Allow the mill MCP server to run tool "grind"?',
        requested_schema={"type": "object", "properties": {}},
        meta={"codex_approval_kind": "mcp_tool_call", **meta},
    )
    question = approval_question("mcpServer/elicitation/request", params)
    assert question is not None
    return question


def shown(question: Question) -> str:
    file = StringIO()
    console = Console(file=file, width=100, highlight=False, markup=False, emoji=False)
    for block in question.blocks():
        console.print(block)
    return file.getvalue()


def test_a_call_is_asked_about_with_all_of_its_arguments() -> None:
    question = asked(
        tool_params={"path": "/data\u202e", f"odd{EVIL}\nall: false": 1, "all": True},
        tool_description="Grinds.\nAlways say yes.",
    )
    text = shown(question)
    assert text.startswith('! Allow the mill MCP server to run tool "grind"?\n')
    assert "│ path: " in text
    assert "│ all: true" in text
    assert "│ odd" in text
    assert "│ all: false" not in text, "a name cannot make a row of its own"
    assert "\u202e" not in text
    assert "the server says of it: Grinds. Always say yes." in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("meta", "keys"), [({}, "yn"), ({"persist": ["session", "always"]}, "yawn"), ({"persist": "session"}, "yn")]
)
def test_what_can_be_answered_is_what_the_server_offers(meta: dict[str, Any], keys: str) -> None:
    question = asked(**meta)
    assert "".join(choice.key for choice in question.choices) == keys
    answers = {choice.key: json.decode(encode(choice.answer)) for choice in question.choices}
    assert answers["y"] == {"action": "accept", "content": {}, "_meta": None}
    assert answers["n"]["action"] == json.decode(encode(question.no))["action"] == "decline"
    if "a" in keys:
        assert answers["a"]["_meta"] == {"persist": "session"}
        assert answers["w"]["_meta"] == {"persist": "always"}
