"""A request read as the plan wants it, and a plan written as a reply: once, in the form of the Responses API.

`treadle.testing.wires` turns the one into it, and the other from it, for the API that was asked. What is here besides
are the few habits in which the models of the APIs differ, because agent programs show them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from treadle.testing import replies
from treadle.testing.engines.engine_plan import Asked, Call, Plan, flat
from treadle.testing.recorded import RecordedRequest
from treadle.testing.replies import Event, Reply, ToolCall, Usage
from treadle.testing.wires import WireName, wire_name
from treadle.testing.wires.responses import dicts

_USAGE: Final = Usage(input_tokens=11, cached_input_tokens=3, output_tokens=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Habits:
    """Of the models of an API.

    Args:
        thought: What THINK thinks.
        sealed: The thought as only the provider can read it.
        usage: The token counts of every reply.
        call_prefix: How the ids of calls begin.
        before_a_call: What is said before a call; None for nothing.
        responses_only: Whether it has custom tools, namespaces, searches, and messages that are commentary.
    """

    thought: str = "mock thought"
    sealed: str | None = "c2ln"
    usage: Usage = _USAGE
    call_prefix: str = "call"
    before_a_call: str | None = "Running it."
    responses_only: bool = False


_HABITS: Final[Mapping[WireName, _Habits]] = {
    "responses": _Habits(
        thought="**Thinking about it**\n\nmock thought", sealed=None, before_a_call=None, responses_only=True
    ),
    "chat": _Habits(),
    # What comes from the cache is not part of the input in this API: 11 are left.
    "anthropic": _Habits(usage=Usage(input_tokens=14, cached_input_tokens=3, output_tokens=7), call_prefix="toolu"),
}


def read(request: RecordedRequest) -> Asked:
    """What a request asks; `ValueError` when it makes no sense."""
    for name in ("input", "messages", "tools"):
        value = request.json.get(name) or []
        if not isinstance(value, str) and dicts(value) != value:
            raise ValueError(f"`{name}` is no list of objects")
    spoken = [item for item in request.input if item.get("role") not in ("system", "developer")]
    last = spoken[-1] if spoken else {}
    by_tool = str(last.get("type", "")).endswith("_output")
    return Asked(
        text=flat(last.get("output") if by_tool else last.get("content")),
        by_tool=by_tool,
        users=sum(item.get("role") == "user" for item in spoken),
        tools=frozenset(request.tool_names),
    )


def write(plan: Plan, request: RecordedRequest, name: str) -> Reply:
    """The reply to a request; `name` is part of all its ids."""
    wire = wire_name(request.path)
    if wire == "anthropic" and plan.call is not None:
        json.loads(plan.call.arguments)  # a model of this API can only call with an object
    habits = _HABITS[wire]
    items = list(_items(plan, request, name, habits))
    body: list[Event] = []
    for index, item in enumerate(items):
        if item["type"] == "message":
            body += replies.message_events(item, [flat(item["content"])], index)
        else:
            body += replies.item_events(item, index)
    return replies.sse_reply(replies.stream(f"resp_{name}", body, items, habits.usage))


def error(status: int) -> Reply:
    """The HTTP error with this status."""
    return replies.error_reply(
        status, {"error": {"message": f"mock error {status}", "type": "mock_error", "code": str(status)}}
    )


def _items(plan: Plan, request: RecordedRequest, name: str, habits: _Habits) -> Iterator[dict[str, Any]]:
    commentary = plan.commentary and habits.responses_only
    if plan.think:
        yield replies.reasoning_item(f"rs_{name}", habits.thought, habits.sealed)
    if commentary:
        yield replies.message_item(f"msg_{name}_0", "Working on it.", "commentary")
    if plan.search is not None and habits.responses_only:
        action = {"type": "search", "query": plan.search}
        yield {"type": "web_search_call", "id": f"ws_{name}", "status": "completed", "action": action}
    if plan.call is None:
        yield replies.message_item(f"msg_{name}", plan.text, "final_answer" if commentary else None)
        return
    if habits.before_a_call is not None:
        yield replies.message_item(f"msg_{name}", habits.before_a_call, None)
    call_id = f"{habits.call_prefix}_{name}"
    if habits.responses_only:
        yield _responses_call(plan.call, request, call_id)
    else:
        yield ToolCall(plan.call.name, plan.call.arguments).item(call_id)


def _responses_call(call: Call, request: RecordedRequest, call_id: str) -> dict[str, Any]:
    offered = [tool for tool in request.json.get("tools") or () if tool.get("name") == call.name]
    if offered and offered[0].get("type") == "custom":
        return ToolCall(call.name, json.loads(call.arguments), custom=True).item(call_id)
    namespace, dot, name = call.name.partition(".")
    if dot:
        return {**ToolCall(name, call.arguments).item(call_id), "namespace": namespace}
    return ToolCall(call.name, call.arguments).item(call_id)
