"""The Messages API (`POST /v1/messages`), which claude speaks."""

from __future__ import annotations

import json
from typing import Any, Final

from treadle.testing import replies
from treadle.testing.engines import responses
from treadle.testing.engines.engine_plan import Asked, Plan, flat
from treadle.testing.engines.responses import called_after_words
from treadle.testing.replies import Reply, Usage
from treadle.testing.wires import messages, translated

# What comes from the cache is not part of the input in this API: 11 are left.
USAGE: Final = Usage(input_tokens=14, cached_input_tokens=3, output_tokens=7)


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
    if plan.call is not None:
        json.loads(plan.call.arguments)  # a model of this API can only call with an object
    events = called_after_words(plan, name, f"toolu_{name}", USAGE)
    return translated(replies.sse_reply(events), "/messages", {"stream": asked.streamed, "model": asked.model})


def error(status: int) -> dict[str, Any]:
    return dict(messages.error(status, responses.error(status)))
