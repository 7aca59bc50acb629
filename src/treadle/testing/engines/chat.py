"""The Chat Completions API (`POST /v1/chat/completions`), which opencode and pi speak."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from treadle.testing import replies
from treadle.testing.engines.prompt import Asked, Plan, flat
from treadle.testing.engines.responses import error
from treadle.testing.replies import Reply

__all__ = ["error", "read", "write"]

USAGE: Final[dict[str, Any]] = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3},
}


def read(body: dict[str, Any]) -> Asked:
    spoken = [message for message in body.get("messages") or [] if message.get("role") not in ("system", "developer")]
    last = spoken[-1] if spoken else {}
    functions = [tool.get("function") or {} for tool in body.get("tools") or []]
    return Asked(
        text=flat(last.get("content")),
        by_tool=last.get("role") == "tool",
        users=sum(message.get("role") == "user" for message in spoken),
        tools={str(function.get("name")): "function" for function in functions},
        streamed=bool(body.get("stream")),
        model=str(body.get("model", "")),
    )


def write(plan: Plan, asked: Asked, name: str) -> Reply:
    common = {"id": f"chatcmpl-{name}", "created": 0, "model": asked.model}
    if not asked.streamed:
        return replies.error_reply(200, {**common, **_whole(plan, name), "usage": USAGE})
    chunk = {**common, "object": "chat.completion.chunk"}
    frames = [
        _frame({**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        for delta, reason in _deltas(plan, name)
    ]
    return replies.sse_reply([*frames, _frame({**chunk, "choices": [], "usage": USAGE}), b"data: [DONE]\n\n"])


def _frame(chunk: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(chunk, separators=(",", ":")).encode()


def _whole(plan: Plan, name: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": plan.text if plan.call is None else None}
    if plan.call is not None:
        message["tool_calls"] = [_tool_call(plan, name)]
    choice = {"index": 0, "message": message, "finish_reason": _reason(plan)}
    return {"object": "chat.completion", "choices": [choice]}


def _deltas(plan: Plan, name: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": ""}, None
    if plan.think:
        yield {"reasoning_content": "mock thought"}, None
    if plan.call is None:
        yield {"content": plan.text}, None
    else:
        yield {"content": "Running it."}, None
        yield {"tool_calls": [{"index": 0, **_tool_call(plan, name)}]}, None
    yield {}, _reason(plan)


def _reason(plan: Plan) -> str:
    return "stop" if plan.call is None else "tool_calls"


def _tool_call(plan: Plan, name: str) -> dict[str, Any]:
    assert plan.call is not None
    function = {"name": plan.call.name, "arguments": plan.call.arguments}
    return {"id": f"call_{name}", "type": "function", "function": function}
