"""From events of the Responses API to model events, sans I/O.

It owns the open items of one response, and keeps the order that `treadle.llm.model` promises even for servers that omit
things: an item may only be announced when done, and a delta may not name its item.
"""

from __future__ import annotations

import os
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.llm.failure import ErrorDetail, cut, failed, incomplete
from treadle.llm.model import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    TextDelta,
    TokenUsage,
    ToolInputDelta,
    UnknownEvent,
)
from treadle.llm.output_items import (
    CustomToolCallItem,
    FunctionCallItem,
    MessageItem,
    OtherItem,
    OutputItem,
    ReasoningItem,
    read_item,
    upstream_id,
)
from treadle.llm.sse import SseEvent

# More open items than any response has, so that a server that only ever starts items cannot fill the memory.
MAX_OPEN: Final = 4096

Family: TypeAlias = Literal["message", "reasoning", "call", "other"]


# --- deltas of an open item: nearly all of the traffic, so each is decoded into no more than is needed ----------------


class _Delta(Struct, gc=False, tag_field="type"):
    item_id: str | None = None
    family: ClassVar[Family]

    def model_event(self, owner: str) -> ModelEvent:
        raise NotImplementedError


class _Text(_Delta, gc=False, tag="response.output_text.delta"):
    delta: str = ""
    family = "message"

    def model_event(self, owner: str) -> ModelEvent:
        return TextDelta(owner, self.delta)


class _SummaryPart(_Delta, gc=False, tag="response.reasoning_summary_part.added"):
    summary_index: int = 0
    family = "reasoning"

    def model_event(self, owner: str) -> ModelEvent:
        return ReasoningSummaryPart(owner, self.summary_index)


class _Summary(_Delta, gc=False, tag="response.reasoning_summary_text.delta"):
    summary_index: int = 0
    delta: str = ""
    family = "reasoning"

    def model_event(self, owner: str) -> ModelEvent:
        return ReasoningSummaryDelta(owner, self.summary_index, self.delta)


class _Reasoning(_Delta, gc=False, tag="response.reasoning_text.delta"):
    content_index: int = 0
    delta: str = ""
    family = "reasoning"

    def model_event(self, owner: str) -> ModelEvent:
        return ReasoningDelta(owner, self.content_index, self.delta)


class _Arguments(_Delta, gc=False, tag="response.function_call_arguments.delta"):
    delta: str = ""
    family = "call"

    def model_event(self, owner: str) -> ModelEvent:
        return ToolInputDelta(owner, self.delta)


class _CustomInput(_Arguments, gc=False, tag="response.custom_tool_call_input.delta"):
    pass


# --- all others -------------------------------------------------------------------------------------------------------


class _Event(Struct):
    type: str
    item: Raw = Raw()
    response: Raw = Raw()
    output_index: int | None = None
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


_delta = msgspec.json.Decoder(_Text | _SummaryPart | _Summary | _Reasoning | _Arguments | _CustomInput)
_event = msgspec.json.Decoder(_Event)
_response = msgspec.json.Decoder(_Response)


class _Open(Struct):
    item_id: str
    family: Family
    index: int | None
    named: bool  # whether the server gave the id


class Translator:
    """One response. `receive` may raise the `ModelError` that the server reported; `end` raises if
    the stream was cut.
    """

    def __init__(self) -> None:
        self.completed: bool = False
        self._open: dict[str, _Open] = {}

    def receive(self, sse: SseEvent) -> list[ModelEvent]:
        data = sse.data
        try:
            event = _delta.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return self._other(sse)
        item_id = event.item_id
        named = self._open.get(item_id) if item_id else None
        owner = self._likely(event) if named is None else named
        if owner is None or owner.family != event.family:
            return [UnknownEvent(event.__struct_config__.tag, data)]
        return [event.model_event(owner.item_id)]

    def end(self) -> list[ModelEvent]:
        if not self.completed:
            raise cut()
        return []

    def _other(self, sse: SseEvent) -> list[ModelEvent]:
        if sse.data == "[DONE]":
            return []
        try:
            event = _event.decode(sse.data)
            return self._translate(event) or [UnknownEvent(event.type, sse.data)]
        except (msgspec.DecodeError, RecursionError):
            # Also where a known event has members of other types than ours: it is then a stranger with a known name.
            return [UnknownEvent(sse.event, sse.data)]

    def _translate(self, event: _Event) -> list[ModelEvent]:
        """Nothing for an event that is not known, or belongs to nothing."""
        match event.type:
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

    def _likely(self, delta: _Delta) -> _Open | None:
        """The latest open item that can be meant, when it is not named."""
        for item in reversed(self._open.values()):
            if item.family == delta.family and not (delta.item_id and item.named):
                return item
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


def make_translator(request: ModelRequest) -> Translator:
    """A new one for each response, whatever was asked."""
    return Translator()
