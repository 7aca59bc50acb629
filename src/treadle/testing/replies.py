"""`Reply`: what the mock model answers to one request, and how the usual answers look as server-sent events.

Owns the shape of the events. Does not send them: `mock_server` does, `mock_model` decides when.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypedDict, Unpack

Event: TypeAlias = Mapping[str, Any]


class Timing(TypedDict, total=False):
    """When a reply is sent, and how much of it.

    `delay_s` waits before anything is sent, `delta_delay_s` before each delta, so that the text comes slowly. `gate`
    waits until the test sets the event: before anything is sent, or after the first `gate_after` events. `cut_after`
    closes the connection after that many events, without an end; `MockModel.enqueue_drop` before there is an answer.
    """

    delay_s: float
    delta_delay_s: float
    gate: threading.Event | None
    gate_after: int
    cut_after: int | None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer: a status, headers, and the body in frames. See `Timing` for the other fields.

    `streamed` sends the frames one by one, an event each, without saying how long the whole will be. `dropped` is no
    answer at all: the connection is closed. `events` and `body` are what the frames were made from, where it is known:
    from these the reply is written for the other APIs.
    """

    status: int = 200
    streamed: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    frames: tuple[bytes, ...] = field(default=(), repr=False)
    delay_s: float = 0.0
    delta_delay_s: float = 0.0
    gate: threading.Event | None = None
    gate_after: int = 0
    cut_after: int | None = None
    dropped: bool = False
    events: tuple[Event | bytes, ...] = field(default=(), repr=False)
    body: Event | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 100 <= self.status <= 599:
            raise ValueError(f"status must be an HTTP status from 100 to 599, not {self.status}")
        if min(self.delay_s, self.delta_delay_s, self.gate_after, self.cut_after or 0) < 0:
            raise ValueError("delay_s, delta_delay_s, gate_after and cut_after cannot be negative")
        if self.gate_after and self.gate is None:
            raise ValueError("gate_after needs a gate: pass gate=threading.Event() and set it in the test")
        if max(self.gate_after, self.cut_after or 0) > len(self.frames):
            raise ValueError(f"gate_after and cut_after cannot be more than the {len(self.frames)} events of the reply")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The token counts of a response."""

    input_tokens: int = 1
    cached_input_tokens: int = 0
    output_tokens: int = 1
    reasoning_output_tokens: int = 0

    def to_wire(self) -> dict[str, Any]:
        """The usage as the Responses API has it."""
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_input_tokens},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_output_tokens},
            "total_tokens": self.input_tokens + self.output_tokens,
        }


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool. A mapping is sent as JSON, a string as it is (so it may be bad JSON).

    With `custom` the tool takes free text, as `apply_patch` does, and `arguments` is that text.
    """

    name: str
    arguments: Mapping[str, Any] | str
    call_id: str | None = None
    custom: bool = False

    def __post_init__(self) -> None:
        if self.custom and not isinstance(self.arguments, str):
            raise ValueError(f"the custom tool {self.name!r} takes free text: pass a string")

    def item(self, call_id: str) -> dict[str, Any]:
        """The output item."""
        common = {"call_id": call_id, "name": self.name, "status": "completed"}
        if self.custom:
            return {"type": "custom_tool_call", "id": f"ctc_{call_id}", "input": self.arguments, **common}
        text = self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)
        return {"type": "function_call", "id": f"fc_{call_id}", "arguments": text, **common}


def frame(event: Event) -> bytes:
    """One server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()


_GROWTH: Final = re.compile(
    rb'event: (?:\S+\.delta|content_block_delta)\n|data: .*"delta":\{"(?:content|reasoning_content|tool_calls)":'
)


def is_delta(sent: bytes) -> bool:
    """Whether a frame is a piece of something that grows, in any of the APIs."""
    return _GROWTH.match(sent) is not None


def frames_of(events: Sequence[Event | bytes] | bytes) -> tuple[bytes, ...]:
    """Events, or ready bytes (cut at the empty lines, otherwise untouched), as frames."""
    if not isinstance(events, bytes):
        return tuple(event if isinstance(event, bytes) else frame(event) for event in events)
    *whole, rest = events.split(b"\n\n")
    frames = [part + b"\n\n" for part in whole]
    return tuple([*frames, rest] if rest else frames)


def stream(response_id: str, body: Sequence[Event], items: Sequence[Event], usage: Usage | None) -> list[Event]:
    """A whole response: created, the body, completed."""
    response = {"id": response_id, "object": "response", "status": "in_progress", "output": []}
    done = {**response, "status": "completed", "output": list(items), "usage": (usage or Usage()).to_wire()}
    created = {"type": "response.created", "response": response}
    return [created, *body, {"type": "response.completed", "response": done}]


def message_item(item_id: str, text: str, phase: str | None) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content}
    return item if phase is None else {**item, "phase": phase}


def reasoning_item(item_id: str, text: str, sealed: str | None) -> dict[str, Any]:
    """A thought: its summary, and the whole of it as only the provider can read it."""
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": sealed}


def reasoning_events(item: Event, index: int = 0) -> Iterator[Event]:
    """A thought as it is streamed."""
    # What begins sealed and empty is a thought without words in the Messages API; this one will have some.
    sealed = None if item["summary"] else item["encrypted_content"]
    opened = {**item, "summary": [], "encrypted_content": sealed}
    yield {"type": "response.output_item.added", "output_index": index, "item": opened}
    for number, part in enumerate(item["summary"]):
        place = {"item_id": item["id"], "output_index": index, "summary_index": number}
        yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": part["text"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def message_events(item: Event, deltas: Sequence[str], index: int = 0) -> Iterator[Event]:
    """An assistant message as it is streamed."""
    # With its empty part: clients that add up deltas look for it.
    opened = {**item, "status": "in_progress", "content": [{**part, "text": ""} for part in item["content"]]}
    yield {"type": "response.output_item.added", "output_index": index, "item": opened}
    for delta in deltas:
        yield {
            "type": "response.output_text.delta",
            "item_id": item["id"],
            "output_index": index,
            "content_index": 0,
            "delta": delta,
        }
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def item_events(item: Event, index: int) -> Iterator[Event]:
    """An item without deltas."""
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def sse_reply(events: Sequence[Event | bytes] | bytes, **timing: Unpack[Timing]) -> Reply:
    known = () if isinstance(events, bytes) else tuple(events)
    return Reply(headers={"Content-Type": "text/event-stream"}, frames=frames_of(events), events=known, **timing)


def error_reply(
    status: int,
    body: Mapping[str, Any] | str | bytes,
    headers: Mapping[str, str] | None = None,
    *,
    delay_s: float = 0.0,
    gate: threading.Event | None = None,
) -> Reply:
    """A plain HTTP answer; a mapping is sent as JSON."""
    if isinstance(body, Mapping):
        kind, content = "application/json", json.dumps(body).encode()
    else:
        kind, content = "text/plain; charset=utf-8", body.encode() if isinstance(body, str) else body
    return Reply(
        status=status,
        streamed=False,
        headers={"Content-Type": kind, **(headers or {})},
        frames=(content,),
        delay_s=delay_s,
        gate=gate,
        body=body if isinstance(body, Mapping) else None,
    )
