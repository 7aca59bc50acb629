"""The Responses API over Server-Sent Events: the body of a request, and the translation of the response. All of it is
pure.

`ResponsesTranslator` owns the open items of one response, and keeps the order that `treadle.llm.model` promises even
for servers that omit things: an item may appear only when it is done, and a delta may not name its item.

Some servers of this API know no namespaces of tools. For them (`FLAT`) a namespace becomes part of the names of its
tools, and the names in calls are taken apart again, so that the history has them as everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.http.sse import SseEvent
from treadle.llm.failure import ErrorDetail, cut, failed, http_failure, incomplete
from treadle.llm.model import (
    Completed,
    Created,
    HttpFailure,
    ItemDone,
    ItemStarted,
    JsonObject,
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
    OPAQUE_MEMBER,
    CustomToolCallItem,
    FunctionCallItem,
    MessageItem,
    OtherItem,
    OutputItem,
    ReasoningItem,
    is_opaque,
    read_item,
    upstream_id,
)
from treadle.llm.wire_api import Asking, WireApi

if TYPE_CHECKING:
    from treadle.llm.chat.chat_tools import ChatToolNames

_INCLUDE: Final = ("reasoning.encrypted_content",)


class _ReasoningOptions(Struct, omit_defaults=True):
    effort: str | None = None
    summary: str | None = None


class _SchemaFormat(Struct):
    schema: JsonObject
    type: str = "json_schema"
    strict: bool = True
    name: str = "codex_output_schema"


class _TextOptions(Struct):
    format: _SchemaFormat


class _Body(Struct, omit_defaults=True, kw_only=True):
    """Members at their default are omitted; the others are always sent."""

    model: str
    instructions: str | None = None
    input: Sequence[JsonObject]
    tools: Sequence[JsonObject]
    tool_choice: str
    parallel_tool_calls: bool
    reasoning: _ReasoningOptions | None = None
    store: bool
    stream: bool
    include: tuple[str, ...]
    max_output_tokens: int | None = None
    prompt_cache_key: str | None = None
    text: _TextOptions | None = None
    client_metadata: Mapping[str, str] | None = None
    service_tier: str | None = None


_encoder = msgspec.json.Encoder()


def encode_body(request: ModelRequest, asking: Asking) -> bytes:
    """JSON for `POST …/responses`. Nothing is stored by the provider: every request carries the whole history."""
    if FLAT in asking.quirks or not asking.provider.namespaces:
        # The same request without namespaces.
        names = _flat_names(request.tools)
        tools: list[JsonObject] = []
        for tool in request.tools:
            spec = _object(tool, b'"namespace"') or _object(tool, b'"tool_search"')
            if spec is not None and spec.get("type") == "tool_search":
                function = {"type": "function", "name": "tool_search", "strict": False}
                tools.append({**function, "description": spec["description"], "parameters": spec["parameters"]})
                continue
            if spec is None or spec.get("type") != "namespace":
                tools.append(tool)
                continue
            for member in spec["tools"]:
                flat = {key: value for key, value in member.items() if key != "defer_loading"}
                tools.append({**flat, "name": names.name_of(spec["name"], member["name"])})
        items: list[JsonObject] = []
        for item in request.input:
            call = _object(item, b'"namespace"')
            if call is None or call.get("type") not in _CALLS or not isinstance(call.get("namespace"), str):
                items.append(item)
                continue
            flat = {key: value for key, value in call.items() if key != "namespace"}
            items.append({**flat, "name": names.name_of(call["namespace"], call["name"])})
        request = msgspec.structs.replace(request, tools=tools, input=items)
    encoded = _encoder.encode(_body(request, request.input))
    if OPAQUE_MEMBER not in encoded:  # one look at all of it, because there may be thousands of items
        return encoded
    return _encoder.encode(_body(request, [item for item in request.input if not is_opaque(item)]))


def _body(request: ModelRequest, items: Sequence[JsonObject]) -> _Body:
    schema, effort = request.output_schema, request.reasoning_effort
    # "none" as a summary means that none is wanted, which the API says by silence.
    summary = None if request.reasoning_summary == "none" else request.reasoning_summary
    return _Body(
        model=request.model,
        instructions=request.instructions,
        input=items,
        tools=request.tools,
        tool_choice="auto",
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning=None if effort is None and summary is None else _ReasoningOptions(effort, summary),
        store=False,
        stream=True,
        include=_INCLUDE,
        max_output_tokens=request.max_output_tokens,
        prompt_cache_key=request.prompt_cache_key,
        text=None if schema is None else _TextOptions(_SchemaFormat(schema)),
        client_metadata=request.client_metadata,
        service_tier=request.service_tier,
    )


# --- namespaces -------------------------------------------------------------------------------------------------------

FLAT: Final = "flat"
_CALLS: Final = ("function_call", "custom_tool_call")


def other_way(failure: HttpFailure, quirks: frozenset[str]) -> frozenset[str] | None:
    """Without namespaces and the search for tools, when a server refuses a request because of them."""
    said = failure.body.lower()
    refused = failure.status in (400, 422) and (b"namespace" in said or b"tool_search" in said)
    return quirks | {FLAT} if refused else None


def _object(given: JsonObject, mark: bytes) -> dict[str, Any] | None:
    """An item as a dictionary; None for JSON without the mark, which is not read: there may be thousands of items."""
    if not isinstance(given, Raw):
        return dict(given)
    return msgspec.json.decode(given, type=dict[str, Any]) if mark in bytes(given) else None


def _flat_names(tools: Sequence[JsonObject]) -> ChatToolNames:
    from treadle.llm.chat.chat_tools import ChatToolNames  # only where a name has to be made or taken apart

    return ChatToolNames(tools)


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


class ResponsesTranslator:
    """One response. `receive` may raise the `ModelError` that the server reported; `end` raises if
    the stream was cut.
    """

    def __init__(self, tools: Sequence[JsonObject] = ()) -> None:
        self.completed: bool = False
        self._open: dict[str, _Open] = {}
        self._tools = tools

    def receive(self, sse: SseEvent) -> list[ModelEvent]:
        data = sse.data
        try:
            event = _delta.decode(data)
        except (msgspec.DecodeError, RecursionError):
            if sse.data == "[DONE]":
                return []
            try:
                other = _event.decode(sse.data)
                return self._translate(other) or [UnknownEvent(other.type, sse.data)]
            except (msgspec.DecodeError, RecursionError):
                # Also where a known event has members of other types than ours: a stranger with a known name.
                return [UnknownEvent(sse.event, sse.data)]
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

    def _translate(self, event: _Event) -> list[ModelEvent]:
        """The events of the model that an event is; none for one that is not known, or belongs to nothing."""
        match event.type:
            case "response.output_item.added":
                given = upstream_id(event.item)
                if given in self._open:
                    return []
                item = self._read(event.item, given or _new_id())
                if len(self._open) >= MAX_OPEN:
                    raise cut(f"the server opened more than {MAX_OPEN} items")
                self._open[item.id] = _Open(item.id, _family(item), event.output_index, bool(given))
                return [ItemStarted(item)]
            case "response.output_item.done":
                raw = event.item
                given = upstream_id(raw)
                item = self._read(raw, given or _new_id())
                opened = self._match(item, given, event.output_index)
                if opened is None:
                    return [ItemStarted(item), ItemDone(item)]
                del self._open[opened.item_id]
                return [ItemDone(item if item.id == opened.item_id else self._read(raw, opened.item_id))]
            case "response.created":
                return [Created(_response.decode(event.response).id or "")]
            case "response.completed" | "response.done":
                self.completed = True
                try:
                    response = _response.decode(event.response)
                except msgspec.DecodeError:  # it has ended; to ask again because of odd numbers would be worse
                    return [Completed("")]
                return [Completed(response.id or "", None if response.usage is None else _usage(response.usage))]
            case "response.failed" | "error":
                if bytes(event.response):
                    raise failed(_response.decode(event.response).error or ErrorDetail())
                raise failed(event.error or ErrorDetail(code=event.code, message=event.message))
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

    def _read(self, raw: Raw, item_id: str) -> OutputItem:
        """The item; a call by a joined name as one of the tool in its namespace."""
        item = read_item(raw, item_id)
        if isinstance(item, FunctionCallItem | CustomToolCallItem) and item.namespace is None and "__" in item.name:
            tool = _flat_names(self._tools).tool(item.name)
            if tool.namespace is not None:
                call = {**msgspec.json.decode(raw), "namespace": tool.namespace, "name": tool.name}
                return read_item(Raw(msgspec.json.encode(call)), item_id)
        return item

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


def make_translator(request: ModelRequest) -> ResponsesTranslator:
    """A new one for each response, whatever was asked."""
    return ResponsesTranslator(request.tools)


WIRE_API: Final = WireApi(
    name="responses",
    path="/responses",
    encode=encode_body,
    translator=make_translator,
    failure=http_failure,
    other_way=other_way,
    searches=frozenset({"cached", "indexed", "live"}),
)
