"""The Messages API of Anthropic (`POST /v1/messages`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from treadle.testing.replies import frame
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

_REASONS: Final = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_CODES: Final = {
    "context_length_exceeded": "invalid_request_error",
    "rate_limit_exceeded": "rate_limit_error",
    "server_is_overloaded": "overloaded_error",
    "slow_down": "overloaded_error",
    "insufficient_quota": "billing_error",
    "usage_limit_reached": "billing_error",
}
_DELTAS: Final = {"message": ("text_delta", "text"), "reasoning": ("thinking_delta", "thinking")}
# Clients have no other place for what the developer says in the middle of a conversation.
_REMINDER: Final = re.compile(r"<system-reminder>\n?(.*?)\n?</system-reminder>\s*", re.DOTALL)
_TOO_LONG: Final = "prompt is too long: 200001 tokens > 200000 maximum"


# --- replies ----------------------------------------------------------------------------------------------------------


def frames(events: Sequence[Event | bytes], request: Event) -> tuple[bytes, ...]:
    """A stream of events."""
    writer = _Writer(events, request)
    return tuple(
        event if isinstance(event, bytes) else b"".join(frame(made) for made in writer.write(event)) for event in events
    )


class _Writer:
    def __init__(self, events: Sequence[Event | bytes], request: Event) -> None:
        self._script = Script(request)
        self._response, self._incomplete = ending(events)
        self._called = False

    def write(self, event: Event) -> Iterator[Event]:
        failure = failure_of(event)
        if failure is not None:
            yield error(500, {"error": failure})
            return
        match event["type"]:
            case "response.created":
                yield {"type": "message_start", "message": _message(self._response, self._script.request)}
            case "response.completed" | "response.incomplete":
                delta = {"stop_reason": _reason(self._incomplete, self._called), "stop_sequence": None}
                yield {"type": "message_delta", "delta": delta, "usage": _usage(self._response)}
                yield {"type": "message_stop"}
            case _:
                growing = self._script.find(event)
                if growing is not None:
                    yield from self._grow(event, growing)

    def _grow(self, event: Event, growing: Growing) -> Iterator[Event]:
        index = growing.index
        if not growing.opened:
            growing.opened = True
            self._called = self._called or growing.kind in CALLS
            yield {"type": "content_block_start", "index": index, "content_block": _opened(growing.item)}
        done = event["type"] == "response.output_item.done"
        piece = self._script.rest(growing) if done else delta_of(event)
        if piece:
            growing.sent += piece
            kind, member = _DELTAS.get(growing.kind, ("input_json_delta", "partial_json"))
            yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, member: piece}}
        if done:
            if growing.kind == "reasoning" and growing.sent:
                signature = {"type": "signature_delta", "signature": growing.item.get("encrypted_content") or ""}
                yield {"type": "content_block_delta", "index": index, "delta": signature}
            yield {"type": "content_block_stop", "index": index}


def whole(events: Sequence[Event | bytes], request: Event) -> Event:
    """A message in one piece."""
    response, incomplete = ending(events)
    script = Script(request)
    blocks = [_block(item, script.text(item)) for item in items_of(events)]
    called = any(block["type"] == "tool_use" for block in blocks)
    message = _message(response, request)
    return {**message, "content": blocks, "stop_reason": _reason(incomplete, called), "usage": _usage(response)}


def _message(response: Event, request: Event) -> Event:
    return {
        "id": f"msg_{str(response.get('id', 'mock')).removeprefix('resp_')}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", ""),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**_usage(response), "output_tokens": 1},
    }


def _reason(incomplete: str | None, called: bool) -> str:
    if incomplete is not None:  # for whatever reason: it is no proper end
        return _REASONS.get(incomplete, "max_tokens")
    return "tool_use" if called else "end_turn"


def _block(item: Event, text: str) -> dict[str, Any]:
    match item["type"]:
        case "message":
            return {"type": "text", "text": text}
        case "reasoning" if text:
            return {"type": "thinking", "thinking": text, "signature": item.get("encrypted_content") or ""}
        case "reasoning":
            return {"type": "redacted_thinking", "data": item.get("encrypted_content") or ""}
    return {"type": "tool_use", "id": item["call_id"], "name": name_of(item), "input": json.loads(text)}


def _opened(item: Event) -> Event:
    """A block as it begins: without what its deltas bring."""
    match item["type"]:
        case "message":
            return {"type": "text", "text": ""}
        case "reasoning" if item.get("encrypted_content") and not (item.get("summary") or item.get("content")):
            return {"type": "redacted_thinking", "data": item["encrypted_content"]}
        case "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": item["call_id"], "name": name_of(item), "input": {}}


def _usage(response: Event) -> Event:
    """What was read from the cache is not part of the input here."""
    usage = response.get("usage") or {"input_tokens": 1, "output_tokens": 1}
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": usage["input_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["output_tokens"],
    }


def error(status: int, body: Event) -> Event:
    """An error of this API; one that has its form already stays as it is."""
    detail = body.get("error")
    if body.get("type") == "error" or not isinstance(detail, dict):
        return body
    code = detail.get("code") or detail.get("type")
    kind = _CODES.get(str(code)) or _ERRORS.get(status, "api_error")
    message = _TOO_LONG if code == "context_length_exceeded" else detail.get("message", "")
    return {"type": "error", "error": {"type": kind, "message": message}}


# --- requests ---------------------------------------------------------------------------------------------------------


def items(body: Event) -> list[Event]:
    """The conversation; messages of the system are the developer's, as in the Responses API."""
    system = [_spoken("developer", [part]) for part in _parts(body.get("system"), "input_text")]
    return system + [item for message in dicts(body.get("messages")) for item in _items(message)]


def _items(message: Event) -> Iterator[Event]:
    """Blocks that follow each other make one message, up to a call, a result, or what is not said by the user."""
    role = "developer" if message.get("role") == "system" else str(message.get("role"))
    kind = "output_text" if role == "assistant" else "input_text"
    spoken: list[Event] = []
    for part in _parts(message.get("content"), kind):
        reminder = _REMINDER.fullmatch(part.get("text") or "")
        if reminder is None and part.get("type") in ("input_text", "output_text", "input_image"):
            spoken.append(part)
            continue
        if spoken:
            yield _spoken(role, spoken)
            spoken = []
        yield _item(part) if reminder is None else _spoken("developer", [{**part, "text": reminder[1]}])
    if spoken:
        yield _spoken(role, spoken)


def _spoken(role: str, parts: list[Event]) -> Event:
    return {"type": "message", "role": role, "content": parts}


def _parts(content: object, kind: str) -> list[Event]:
    if isinstance(content, str):
        return [{"type": kind, "text": content}]
    parts: list[Event] = []
    for part in dicts(content):
        match part.get("type"):
            case "text":
                parts.append({"type": kind, "text": part.get("text", "")})
            case "image":
                source = part.get("source") or {}
                url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
                parts.append({"type": "input_image", "image_url": url})
            case _:
                parts.append(part)
    return parts


def _item(block: Event) -> Event:
    match block.get("type"):
        case "tool_use":
            arguments = json.dumps(block.get("input"))
            return {
                "type": "function_call",
                "call_id": block.get("id"),
                "name": block.get("name"),
                "arguments": arguments,
            }
        case "tool_result":
            content = block.get("content")
            output = _parts(content, "input_text") if isinstance(content, list) else content
            return {"type": "function_call_output", "call_id": block.get("tool_use_id"), "output": output}
        case "thinking":
            thought = {"type": "reasoning_text", "text": block.get("thinking", "")}
            sealed = block.get("signature")
            return {"type": "reasoning", "summary": [], "content": [thought], "encrypted_content": sealed}
        case "redacted_thinking":
            return {"type": "reasoning", "summary": [], "encrypted_content": block.get("data")}
    return block


def tool_names(body: Event) -> list[str]:
    return [str(tool.get("name", tool.get("type"))) for tool in dicts(body.get("tools"))]


def effort(body: Event) -> Any:
    return at(body, "output_config", "effort")


def output_schema(body: Event) -> Any:
    return at(body, "output_config", "format", "schema")
