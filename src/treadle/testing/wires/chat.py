"""The Chat Completions API (`POST /v1/chat/completions`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from treadle.testing.wires.script import (
    CALLS,
    Event,
    Growing,
    Script,
    at,
    delta_of,
    dicts,
    ending,
    failure_of,
    items_of,
    name_of,
)

_REASONS: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}


# --- replies ----------------------------------------------------------------------------------------------------------


def frames(events: Sequence[Event | bytes], request: Event) -> tuple[bytes, ...]:
    """A stream of chunks."""
    writer = _Writer(events, request)
    return tuple(event if isinstance(event, bytes) else b"".join(writer.write(event)) for event in events)


class _Writer:
    def __init__(self, events: Sequence[Event | bytes], request: Event) -> None:
        self._script = Script(request)
        self._response, self._incomplete = ending(events)
        self._calls = 0
        self._indexes: dict[int, int] = {}  # of calls among calls, by those of items
        self._common = _common(self._response, request, "chat.completion.chunk")

    def write(self, event: Event) -> Iterator[bytes]:
        failure = failure_of(event)
        if failure is not None:
            yield _frame({"error": {"message": "", "type": "server_error", **failure}})
            return
        match event["type"]:
            case "response.created":
                yield self._chunk({"role": "assistant", "content": ""})
            case "response.completed" | "response.incomplete":
                yield self._chunk({}, _reason(self._incomplete, self._calls > 0))
                if (usage := _usage(self._response)) is not None:
                    yield _frame({**self._common, "choices": [], "usage": usage})
                yield b"data: [DONE]\n\n"
            case _:
                growing = self._script.find(event)
                if growing is not None:
                    yield from self._grow(event, growing)

    def _grow(self, event: Event, growing: Growing) -> Iterator[bytes]:
        done = event["type"] == "response.output_item.done"
        piece = self._script.rest(growing) if done else delta_of(event)
        if piece is None or (done and not piece and (growing.opened or growing.kind not in CALLS)):
            return
        growing.sent += piece
        match growing.kind:
            case "message":
                yield self._chunk({"content": piece})
            case "reasoning":
                yield self._chunk({"reasoning_content": piece})
            case _:
                yield self._chunk({"tool_calls": [self._piece(growing, piece)]})

    def _piece(self, growing: Growing, piece: str) -> Event:
        """Only the first piece of a call says which it is."""
        if growing.opened:
            return {"index": self._indexes[growing.index], "function": {"arguments": piece}}
        growing.opened = True
        index = self._indexes[growing.index] = self._calls
        self._calls += 1
        return {"index": index, **_call(growing.item, piece)}

    def _chunk(self, delta: Event, reason: str | None = None) -> bytes:
        return _frame({**self._common, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def whole(events: Sequence[Event | bytes], request: Event) -> Event:
    """A completion in one piece."""
    response, incomplete = ending(events)
    script = Script(request)
    message: dict[str, Any] = {"role": "assistant", "content": None}
    for item in items_of(events):
        text = script.text(item)
        match item["type"]:
            case "message":
                message["content"] = (message["content"] or "") + text
            case "reasoning":
                message["reasoning_content"] = message.get("reasoning_content", "") + text
            case _:
                message.setdefault("tool_calls", []).append(_call(item, text))
    reason = _reason(incomplete, "tool_calls" in message)
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {**_common(response, request, "chat.completion"), "choices": [choice], "usage": _usage(response)}


def _reason(incomplete: str | None, called: bool) -> str:
    if incomplete is not None:  # for whatever reason: it is no proper end
        return _REASONS.get(incomplete, "length")
    return "tool_calls" if called else "stop"


def _common(response: Event, request: Event, kind: str) -> Event:
    name = str(response.get("id", "mock")).removeprefix("resp_")
    return {"id": f"chatcmpl-{name}", "object": kind, "created": 0, "model": request.get("model", "")}


def _call(item: Event, arguments: str) -> Event:
    return {"id": item["call_id"], "type": "function", "function": {"name": name_of(item), "arguments": arguments}}


def _usage(response: Event) -> Event | None:
    usage = response.get("usage")
    if not usage:
        return None
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }


def _frame(chunk: Event) -> bytes:
    return b"data: %b\n\n" % json.dumps(chunk, separators=(",", ":")).encode()


# --- requests ---------------------------------------------------------------------------------------------------------


def items(body: Event) -> list[Event]:
    """The conversation; messages of the system are the developer's, as in the Responses API."""
    return [item for message in dicts(body.get("messages")) for item in _items(message)]


def _items(message: Event) -> Iterator[Event]:
    role, content = message.get("role"), message.get("content")
    match role:
        case "tool":
            output = _parts(content, "input_text") if isinstance(content, list) else content
            yield {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": output}
        case "assistant":
            if message.get("reasoning_content"):
                thought = {"type": "reasoning_text", "text": message["reasoning_content"]}
                yield {"type": "reasoning", "summary": [], "content": [thought]}
            if content:
                yield {"type": "message", "role": role, "content": _parts(content, "output_text")}
            for call in dicts(message.get("tool_calls")):
                yield {"type": "function_call", "call_id": call.get("id"), **(call.get("function") or {})}
        case _:
            speaker = "developer" if role in ("system", "developer") else role
            yield {"type": "message", "role": speaker, "content": _parts(content, "input_text")}


def _parts(content: object, kind: str) -> list[Event]:
    if isinstance(content, str):
        return [{"type": kind, "text": content}]
    parts: list[Event] = []
    for part in dicts(content):
        match part.get("type"):
            case "text":
                parts.append({"type": kind, "text": part.get("text", "")})
            case "image_url":
                image = part.get("image_url") or {}
                parts.append({"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail")})
            case _:
                parts.append(part)
    return parts


def tool_names(body: Event) -> list[str]:
    return [str((tool.get("function") or tool).get("name")) for tool in dicts(body.get("tools"))]


def effort(body: Event) -> Any:
    return body.get("reasoning_effort")


def output_schema(body: Event) -> Any:
    return at(body, "response_format", "json_schema", "schema")
