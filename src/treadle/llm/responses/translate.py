"""From the events of the Responses API to model events, sans I/O.

It owns the open items of one response and keeps the order that `treadle.llm.model` promises, also for servers that
leave things out: an item may come only as done, and a delta may not say whose it is.
"""

from __future__ import annotations

import os
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.llm.items import (
    CustomToolCallItem,
    FunctionCallItem,
    MessageItem,
    OtherItem,
    OutputItem,
    ReasoningItem,
    read_item,
    upstream_id,
)
from treadle.llm.model import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelEvent,
    ReasoningDelta,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    TextDelta,
    TokenUsage,
    ToolInputDelta,
    UnknownEvent,
)
from treadle.llm.responses.failure import ErrorDetail, cut, failed, incomplete
from treadle.llm.sse import SseEvent

# More open items than any response has; a server that only ever starts items must not fill the memory.
MAX_OPEN: Final = 4096

Family: TypeAlias = Literal["message", "reasoning", "call", "other"]


class _Event(Struct):
    type: str
    item: Raw = Raw()
    response: Raw = Raw()
    item_id: str | None = None
    output_index: int | None = None
    summary_index: int = 0
    content_index: int = 0
    delta: str = ""
    error: ErrorDetail | None = None
    code: str | int | None = None
    message: str | None = None


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    id: str | None = None
    usage: _Usage | None = None
    error: ErrorDetail | None = None
    incomplete_details: _Incomplete | None = None


_event = msgspec.json.Decoder(_Event)
_response = msgspec.json.Decoder(_Response)


class _Open(Struct):
    item_id: str
    family: Family
    index: int | None
    named: bool  # whether the server gave the id


class Translator:
    """One response. `receive` may raise the `ModelError` that the server reported; `end` raises when it was cut."""

    def __init__(self) -> None:
        self.completed = False
        self._open: dict[str, _Open] = {}

    def receive(self, sse: SseEvent) -> list[ModelEvent]:
        if sse.data == "[DONE]":
            return []
        try:
            event = _event.decode(sse.data)
            return self._translate(event) or [UnknownEvent(event.type, sse.data)]
        except (msgspec.DecodeError, RecursionError):
            # Also where a known event has members of other types than ours: it is then a stranger with a known name.
            return [UnknownEvent(sse.event, sse.data)]

    def end(self) -> None:
        if not self.completed:
            raise cut()

    def _translate(self, event: _Event) -> list[ModelEvent]:
        """Nothing for an event that is not known, or belongs to nothing."""
        match event.type:
            case "response.output_text.delta":
                return self._delta(event, "message")
            case "response.reasoning_summary_text.delta" | "response.reasoning_summary_part.added":
                return self._delta(event, "reasoning")
            case "response.reasoning_text.delta":
                return self._delta(event, "reasoning")
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                return self._delta(event, "call")
            case "response.output_item.added":
                return self._start(event.item, event.output_index)
            case "response.output_item.done":
                return self._done(event.item, event.output_index)
            case "response.created":
                return [Created(_response.decode(event.response).id or "")]
            case "response.completed" | "response.done":
                return [self._complete(event)]
            case "response.failed" | "error":
                raise failed(_failure_detail(event))
            case "response.incomplete":
                details = _response.decode(event.response).incomplete_details
                raise incomplete((details and details.reason) or "unknown")
        return []

    def _delta(self, event: _Event, family: Family) -> list[ModelEvent]:
        owner = self._owner(event, family)
        if owner is None:
            return []
        match event.type:
            case "response.output_text.delta":
                return [TextDelta(owner, event.delta)]
            case "response.reasoning_summary_part.added":
                return [ReasoningSummaryPart(owner, event.summary_index)]
            case "response.reasoning_summary_text.delta":
                return [ReasoningSummaryDelta(owner, event.summary_index, event.delta)]
            case "response.reasoning_text.delta":
                return [ReasoningDelta(owner, event.content_index, event.delta)]
        return [ToolInputDelta(owner, event.delta)]

    def _owner(self, event: _Event, family: Family) -> str | None:
        """The open item that a delta belongs to: the one it names, else the latest that it can mean."""
        item_id = event.item_id
        if item_id is not None and item_id in self._open:
            return item_id if self._open[item_id].family == family else None
        for item in reversed(self._open.values()):
            if item.family == family and not (item_id and item.named):
                return item.item_id
        return None

    def _start(self, raw: Raw, index: int | None) -> list[ModelEvent]:
        given = upstream_id(raw)
        if given in self._open:
            return []
        item = read_item(raw, given or _new_id())
        if len(self._open) >= MAX_OPEN:
            raise cut(f"the server opened more than {MAX_OPEN} items")
        self._open[item.id] = _Open(item.id, _family(item), index, bool(given))
        return [ItemStarted(item)]

    def _done(self, raw: Raw, index: int | None) -> list[ModelEvent]:
        given = upstream_id(raw)
        item = read_item(raw, given or _new_id())
        opened = self._match(item, given, index)
        if opened is None:
            return [ItemStarted(item), ItemDone(item)]
        del self._open[opened.item_id]
        return [ItemDone(item if item.id == opened.item_id else read_item(raw, opened.item_id))]

    def _match(self, item: OutputItem, given: str, index: int | None) -> _Open | None:
        """Which of the open items is done: the same id, or the same place, or the latest of its kind without a name."""
        family = _family(item)
        if given in self._open:
            return self._open[given]
        for opened in reversed(self._open.values()):
            if opened.family != family or (opened.named and given):
                continue
            if index is None or opened.index is None or opened.index == index:
                return opened
        return None

    def _complete(self, event: _Event) -> Completed:
        self.completed = True
        try:
            response = _response.decode(event.response)
        except msgspec.DecodeError:  # it has ended all the same; to ask again because of odd numbers would be worse
            return Completed("")
        return Completed(response.id or "", None if response.usage is None else _usage(response.usage))


def _family(item: OutputItem) -> Family:
    match item:
        case MessageItem():
            return "message"
        case ReasoningItem():
            return "reasoning"
        case FunctionCallItem() | CustomToolCallItem() | OtherItem(type="function_call" | "custom_tool_call"):
            return "call"
    return "other"


def _new_id() -> str:
    return f"item_{os.urandom(12).hex()}"


def _usage(usage: _Usage) -> TokenUsage:
    read = usage.input_tokens_details or _InputDetails()
    written = usage.output_tokens_details or _OutputDetails()
    total = usage.total_tokens
    return TokenUsage(
        input_tokens=usage.input_tokens,
        cached_input_tokens=read.cached_tokens or 0,
        cache_write_input_tokens=read.cache_write_tokens or 0,
        output_tokens=usage.output_tokens,
        reasoning_output_tokens=written.reasoning_tokens or 0,
        total_tokens=usage.input_tokens + usage.output_tokens if total is None else total,
    )


def _failure_detail(event: _Event) -> ErrorDetail:
    if bytes(event.response):
        return _response.decode(event.response).error or ErrorDetail()
    return event.error or ErrorDetail(code=event.code, message=event.message)
