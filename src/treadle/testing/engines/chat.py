"""The Chat Completions API (`POST /v1/chat/completions`), which opencode and pi speak."""

from __future__ import annotations

from typing import Any

from treadle.testing import replies
from treadle.testing.engines.engine_plan import Asked, Plan, flat
from treadle.testing.engines.responses import USAGE, called_after_words, error
from treadle.testing.replies import Reply
from treadle.testing.wires import translated

__all__ = ["error", "read", "write"]


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
    events = called_after_words(plan, name, f"call_{name}", USAGE)
    return translated(replies.sse_reply(events), "/chat/completions", {"stream": asked.streamed, "model": asked.model})
