"""Answers of model servers, byte for byte, in every wire API: what is meant is the same, how it is written is not.

An `Answer` or a `Refusal` is neutral; a `Dialect` writes it as servers of that API do. `heard` reads the events of a
model back into an `Answer`, so that a test compares what was meant with what was understood. To add a wire API, add its
dialect to `DIALECTS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from model_server import Json
from treadle.llm import (
    Completed,
    FunctionCallItem,
    ItemDone,
    MessageItem,
    ModelEvent,
    ReasoningDelta,
    ReasoningItem,
    ReasoningSummaryDelta,
    TextDelta,
    TokenUsage,
    ToolInputDelta,
)

PIECE: Final = 3
"""Texts come in deltas of so many characters."""


@dataclass(frozen=True)
class Call:
    """Of a tool; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """What a response says. Every one of them is said to have read 10 tokens, 2 from the cache, and written 5."""

    text: str = ""
    thought: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """What a server says instead: `code` in the words of the API, the words for people."""

    code: str
    message: str


@dataclass(frozen=True)
class Dialect:
    """How a kind of server writes.

    Args:
        wire_api: Its name.
        frames: The server-sent events of an answer.
        refusal: The body of a response with another status.
        inner_failure: The event that breaks a stream off.
        last: How many frames at the end of an answer say nothing that matters.
        usage: What the answer is said to have cost, as far as the API can tell.
        schema: The output schema in a request.
        images: The images in a request, as base64.
    """

    wire_api: str
    frames: Callable[[Answer], list[bytes]]
    refusal: Callable[[Refusal], Json]
    inner_failure: Callable[[Refusal], bytes]
    last: int
    usage: TokenUsage
    schema: Callable[[Json], Any]
    images: Callable[[Json], list[str]]


def heard(events: Sequence[ModelEvent]) -> Answer:
    """What was understood. Deltas and whole items must say the same, and every delta must have its item."""
    done = [event.item for event in events if isinstance(event, ItemDone)]
    grown: dict[str, str] = {}
    for event in events:
        match event:
            case TextDelta() | ReasoningDelta() | ReasoningSummaryDelta() | ToolInputDelta():
                grown[event.item_id] = grown.get(event.item_id, "") + event.delta
    text, thought, calls = "", "", []
    for item in done:
        match item:
            case MessageItem():
                whole = item.text
                text += whole
            case ReasoningItem():
                whole = "".join((*item.summary, *item.content))
                thought += whole
            case FunctionCallItem():
                whole = item.arguments
                calls.append(Call(item.call_id, item.name, whole))
            case _:
                raise AssertionError(f"nobody said {item}")
        assert grown.pop(item.id, whole) == whole, f"the deltas of {item} say something else"
    return Answer(text, thought, tuple(calls))


def used(events: Sequence[ModelEvent]) -> TokenUsage | None:
    (last,) = (event for event in events if isinstance(event, Completed))
    return last.usage


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _named(event: Json) -> bytes:
    return b"event: %b\n%b" % (event["type"].encode(), _unnamed(event))


def _unnamed(chunk: Json) -> bytes:
    return b"data: %b\n\n" % json.dumps(chunk, separators=(",", ":")).encode()


def _openai_refusal(refusal: Refusal) -> Json:
    return {"error": {"message": refusal.message, "type": "some_error", "param": None, "code": refusal.code}}


def _base64(url: str) -> str:
    return url.partition(";base64,")[2]


# --- Responses -------------------------------------------------------------------------------------------------------


def _responses_frames(answer: Answer) -> list[bytes]:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 15,
    }
    items = list(_responses_items(answer))
    events: list[Json] = [{"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}]
    for index, (item, opened, delta, text) in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", "output_index": index, "item": {**item, **opened}})
        events += [{"type": f"response.{delta}.delta", **place, "delta": piece} for piece in _pieces(text)]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    done = {"id": "resp_1", "status": "completed", "output": [item for item, *_ in items], "usage": usage}
    return [_named(event) for event in (*events, {"type": "response.completed", "response": done})]


def _responses_items(answer: Answer) -> Iterator[tuple[Json, Json, str, str]]:
    """Each with what it lacks at first, the name of its deltas, and what they add up to."""
    if answer.thought:
        summary = [{"type": "summary_text", "text": answer.thought}]
        thought = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "c2VjcmV0"}
        yield thought, {"summary": []}, "reasoning_summary_text", answer.thought
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        yield message, {"content": [], "status": "in_progress"}, "output_text", answer.text
    for call in answer.calls:
        common = {"type": "function_call", "id": f"fc_{call.call_id}", "call_id": call.call_id, "name": call.name}
        yield {**common, "arguments": call.arguments}, {"arguments": ""}, "function_call_arguments", call.arguments


def _responses_failure(refusal: Refusal) -> bytes:
    error = {"code": refusal.code, "message": refusal.message}
    return _named({"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "error": error}})


def _responses_images(body: Json) -> list[str]:
    parts = [part for item in body["input"] for part in item.get("content", item.get("output", []))]
    return [_base64(part["image_url"]) for part in parts if isinstance(part, dict) and part["type"] == "input_image"]


_USAGE: Final = TokenUsage(
    input_tokens=10, cached_input_tokens=2, output_tokens=5, reasoning_output_tokens=1, total_tokens=15
)

RESPONSES: Final = Dialect(
    wire_api="responses",
    frames=_responses_frames,
    refusal=_openai_refusal,
    inner_failure=_responses_failure,
    last=0,
    usage=_USAGE,
    schema=lambda body: body["text"]["format"]["schema"],
    images=_responses_images,
)


# --- Chat Completions ------------------------------------------------------------------------------------------------


def _chat_frames(answer: Answer) -> list[bytes]:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    deltas = [{"role": "assistant", "content": ""}, *_chat_deltas(answer)]
    reason = "tool_calls" if answer.calls else "stop"
    choices: list[list[Json]] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": reason}])
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frames = [_unnamed({**common, "choices": choice}) for choice in choices]
    return [*frames, _unnamed({**common, "choices": [], "usage": usage}), b"data: [DONE]\n\n"]


def _chat_deltas(answer: Answer) -> Iterator[Json]:
    for piece in _pieces(answer.thought):
        yield {"reasoning_content": piece}
    for piece in _pieces(answer.text):
        yield {"content": piece}
    for index, call in enumerate(answer.calls):
        named = {"index": index, "id": call.call_id, "type": "function"}
        yield {"tool_calls": [{**named, "function": {"name": call.name, "arguments": ""}}]}
    # In parallel: a piece of each in turn, which only their index tells apart.
    pieces = [_pieces(call.arguments) for call in answer.calls]
    for number in range(max(map(len, pieces), default=0)):
        for index, of_call in enumerate(pieces):
            if number < len(of_call):
                yield {"tool_calls": [{"index": index, "function": {"arguments": of_call[number]}}]}


def _chat_images(body: Json) -> list[str]:
    parts = [part for message in body["messages"] for part in message.get("content") or () if isinstance(part, dict)]
    return [_base64(part["image_url"]["url"]) for part in parts if part["type"] == "image_url"]


CHAT: Final = Dialect(
    wire_api="chat",
    frames=_chat_frames,
    refusal=_openai_refusal,
    inner_failure=lambda refusal: _unnamed(_openai_refusal(refusal)),
    last=2,
    usage=_USAGE,
    schema=lambda body: body["response_format"]["json_schema"]["schema"],
    images=_chat_images,
)


# --- Anthropic Messages ----------------------------------------------------------------------------------------------


def _anthropic_frames(answer: Answer) -> list[bytes]:
    # What was read from the cache is not counted as input here.
    usage = {"input_tokens": 8, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[Json] = [{"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}]
    events.append({"type": "ping"})
    for index, (block, deltas) in enumerate(_anthropic_blocks(answer)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "tool_use" if answer.calls else "end_turn", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}})
    return [_named(event) for event in (*events, {"type": "message_stop"})]


def _anthropic_blocks(answer: Answer) -> Iterator[tuple[Json, list[Json]]]:
    """Each as it begins, with its deltas."""
    if answer.thought:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(answer.thought)]
        signed = {"type": "signature_delta", "signature": "c2VjcmV0"}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if answer.text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(answer.text)]
    for call in answer.calls:
        begun = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        pieces = ["", *_pieces(call.arguments)]
        yield begun, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def _anthropic_refusal(refusal: Refusal) -> Json:
    error = {"type": refusal.code, "message": refusal.message}
    return {"type": "error", "error": error, "request_id": "req_1"}


def _anthropic_images(body: Json) -> list[str]:
    found = []

    def look(blocks: Any) -> None:
        for block in blocks if isinstance(blocks, list) else ():
            if block["type"] == "image":
                found.append(block["source"]["data"])
            look(block.get("content"))

    for message in body["messages"]:
        look(message["content"])
    return found


ANTHROPIC: Final = Dialect(
    wire_api="anthropic",
    frames=_anthropic_frames,
    refusal=_anthropic_refusal,
    inner_failure=lambda refusal: _named(_anthropic_refusal(refusal)),
    last=0,
    usage=TokenUsage(input_tokens=10, cached_input_tokens=2, output_tokens=5, total_tokens=15),
    schema=lambda body: body["output_config"]["format"]["schema"],
    images=_anthropic_images,
)

DIALECTS: Final = (RESPONSES, CHAT, ANTHROPIC)
