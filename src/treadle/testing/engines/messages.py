"""The Messages API (`POST /v1/messages`), which claude speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from treadle.testing import replies
from treadle.testing.engines.prompt import Asked, Plan, flat
from treadle.testing.replies import Event, Reply

USAGE: Final[dict[str, Any]] = {
    "input_tokens": 11,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 3,
    "output_tokens": 7,
}
_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(body: dict[str, Any]) -> Asked:
    # A conversation may have messages of the system in the middle.
    spoken = [message for message in body.get("messages") or [] if message.get("role") in ("user", "assistant")]
    results = [_results(message.get("content")) for message in spoken]
    last = spoken[-1] if spoken else {}
    by_tool = bool(results and results[-1])
    return Asked(
        text=flat(results[-1][-1].get("content") if by_tool else last.get("content")),
        by_tool=by_tool,
        users=sum(message["role"] == "user" and not given for message, given in zip(spoken, results, strict=True)),
        tools={str(tool.get("name")): str(tool.get("type", "custom")) for tool in body.get("tools") or []},
        streamed=bool(body.get("stream")),
        model=str(body.get("model", "")),
    )


def _results(content: object) -> list[dict[str, Any]]:
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]


def write(plan: Plan, asked: Asked, name: str) -> Reply:
    blocks = list(_blocks(plan, name))
    message: Event = {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**USAGE, "output_tokens": 1},
    }
    stop = "tool_use" if plan.call else "end_turn"
    if not asked.streamed:
        return replies.error_reply(200, {**message, "content": blocks, "stop_reason": stop, "usage": USAGE})
    events: list[Event] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        events += _block_events(index, block)
    delta = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": USAGE["output_tokens"]}})
    events.append({"type": "message_stop"})
    return replies.sse_reply(events)


def _blocks(plan: Plan, name: str) -> Iterator[dict[str, Any]]:
    if plan.think:
        yield {"type": "thinking", "thinking": "mock thought", "signature": "c2ln"}
    if plan.call is None:
        yield {"type": "text", "text": plan.text}
        return
    yield {"type": "text", "text": "Running it."}
    arguments = json.loads(plan.call.arguments)
    yield {"type": "tool_use", "id": f"toolu_{name}", "name": plan.call.name, "input": arguments}


def _block_events(index: int, block: dict[str, Any]) -> Iterator[Event]:
    opened: Event
    match block["type"]:
        case "text":
            opened, deltas = {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            opened = {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case _:
            opened = {"input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    yield {"type": "content_block_start", "index": index, "content_block": {**block, **opened}}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def error(status: int) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": _ERRORS.get(status, "api_error"), "message": f"mock error {status}"},
    }
