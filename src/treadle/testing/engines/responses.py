"""The Responses API (`POST /v1/responses`), which codex and our own agent speak."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from treadle.testing import replies
from treadle.testing.engines.engine_plan import Asked, Call, Plan, flat
from treadle.testing.replies import Event, Reply, ToolCall, Usage

USAGE: Final = Usage(input_tokens=11, cached_input_tokens=3, output_tokens=7)


def read(body: dict[str, Any]) -> Asked:
    given = body.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    spoken = [item for item in items if item.get("role") not in ("system", "developer")]
    last = spoken[-1] if spoken else {}
    by_tool = str(last.get("type", "")).endswith("_output")
    return Asked(
        text=flat(last.get("output") if by_tool else last.get("content")),
        by_tool=by_tool,
        users=sum(item.get("role") == "user" for item in spoken),
        tools={str(tool.get("name", tool.get("type"))): str(tool.get("type")) for tool in body.get("tools") or []},
        model=str(body.get("model", "")),
    )


def write(plan: Plan, asked: Asked, name: str) -> Reply:
    return replies.sse_reply(_events(list(_items(plan, asked, name)), name, USAGE))


def _events(items: list[dict[str, Any]], name: str, usage: Usage) -> list[Event]:
    body: list[Event] = []
    for index, item in enumerate(items):
        if item["type"] == "message":
            body += replies.message_events(item, [flat(item["content"])], index)
        else:
            body += replies.item_events(item, index)
    return replies.stream(f"resp_{name}", body, items, usage)


def called_after_words(plan: Plan, name: str, call_id: str, usage: Usage) -> list[Event]:
    """A plan as the models of the other APIs like to act: a word before each call. Written for these by `wires`."""
    items: list[dict[str, Any]] = []
    if plan.think:
        items.append(replies.reasoning_item(f"rs_{name}", "mock thought", "c2ln"))
    items.append(replies.message_item(f"msg_{name}", plan.text if plan.call is None else "Running it.", None))
    if plan.call is not None:
        items.append(ToolCall(plan.call.name, plan.call.arguments).item(call_id))
    return _events(items, name, usage)


def _items(plan: Plan, asked: Asked, name: str) -> Iterator[dict[str, Any]]:
    if plan.think:
        summary = [{"type": "summary_text", "text": "**Thinking about it**\n\nmock thought"}]
        yield {"type": "reasoning", "id": f"rs_{name}", "summary": summary, "encrypted_content": None}
    if plan.commentary:
        yield replies.message_item(f"msg_{name}_0", "Working on it.", "commentary")
    if plan.search is not None:
        action = {"type": "search", "query": plan.search}
        yield {"type": "web_search_call", "id": f"ws_{name}", "status": "completed", "action": action}
    if plan.call is None:
        yield replies.message_item(f"msg_{name}", plan.text, "final_answer" if plan.commentary else None)
        return
    yield _call_item(plan.call, asked, f"call_{name}")


def _call_item(call: Call, asked: Asked, call_id: str) -> dict[str, Any]:
    if asked.tools.get(call.name) == "custom":
        return ToolCall(call.name, json.loads(call.arguments), custom=True).item(call_id)
    namespace, dot, name = call.name.partition(".")
    if dot:
        return {**ToolCall(name, call.arguments).item(call_id), "namespace": namespace}
    return ToolCall(call.name, call.arguments).item(call_id)


def error(status: int) -> dict[str, Any]:
    return {"error": {"message": f"mock error {status}", "type": "mock_error", "code": str(status)}}
