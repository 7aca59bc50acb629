"""A response of so many deltas, as a server of each wire API writes it, with all that servers send."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

WORDS: Final = ("The ", "quick ", "brown ", "fox ", "jumps ", "over ", "the ", "lazy ", "dog. ", "Again: ")
PATHS: Final = {"responses": "/responses", "chat": "/chat/completions", "anthropic": "/messages"}


def text(deltas: int) -> str:
    """What the deltas add up to."""
    return "".join(_delta(number) for number in range(deltas))


def _delta(number: int) -> str:
    return WORDS[number % len(WORDS)]


def _named(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\n%b" % (event["type"].encode(), _unnamed(event))


def _unnamed(event: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode()


def responses(deltas: int) -> list[bytes]:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": deltas,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10 + deltas,
    }
    part = {"type": "output_text", "text": text(deltas), "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    empty = {**part, "text": ""}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": empty},
        *(
            {"type": "response.output_text.delta", **place, "delta": _delta(number), "logprobs": []}
            for number in range(deltas)
        ),
        {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "output": [item], "usage": usage}},
    ]
    return [_named({**event, "sequence_number": number}) for number, event in enumerate(events)]


def chat(deltas: int) -> list[bytes]:
    usage = {"prompt_tokens": 10, "completion_tokens": deltas, "total_tokens": 10 + deltas}
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    said: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    said += [({"content": _delta(number)}, None) for number in range(deltas)]
    frames = [
        _unnamed({**common, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]})
        for delta, reason in (*said, ({}, "stop"))
    ]
    return [*frames, _unnamed({**common, "choices": [], "usage": usage}), b"data: [DONE]\n\n"]


def anthropic(deltas: int) -> list[bytes]:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    place = {"type": "content_block_delta", "index": 0}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({**place, "delta": {"type": "text_delta", "text": _delta(number)}} for number in range(deltas)),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": deltas},
        },
        {"type": "message_stop"},
    ]
    return [_named(event) for event in events]


FRAMES: Final[Mapping[str, Callable[[int], list[bytes]]]] = {
    "responses": responses,
    "chat": chat,
    "anthropic": anthropic,
}


def http(frames: list[bytes]) -> bytes:
    """A whole HTTP response, a chunk for each event."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames) + b"0\r\n\r\n"
