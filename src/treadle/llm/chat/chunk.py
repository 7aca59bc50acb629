"""A chunk of the Chat Completions stream as JSON, limited to the members that we use.

`OpenCalls` joins tool calls that arrive in pieces: which piece belongs to which call, and the items that they become. A
call is only done when the response is: until then it may not be complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.chat.chat_tools import ChatTool, ChatToolNames, free_text
from treadle.llm.failure import cut
from treadle.llm.model import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelRequest,
    TokenUsage,
    ToolInputDelta,
)
from treadle.llm.output_items import OutputItem, read_item


class FunctionPiece(Struct, gc=False):
    name: str | None = None
    arguments: Any = None  # a text, but some servers send the object


class CallPiece(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None


# --- the fast path: deltas of an open item are nearly all of the traffic, so as little as possible is decoded ---------


class FastDelta(Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning: Any = None


class FastChoice(Struct, gc=False):
    delta: FastDelta | None = None
    finish_reason: str | None = None
    index: int | None = None


class FastChunk(Struct, gc=False):
    choices: list[FastChoice] | None = None


# --- all others -------------------------------------------------------------------------------------------------------


class Detail(Struct):
    """An element of `reasoning_details`, or of content in parts."""

    type: str = ""
    text: str | None = None
    summary: str | None = None
    thinking: Any = None


class ChoiceDelta(Struct):
    content: str | list[Detail] | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    reasoning_details: list[Detail] | None = None
    refusal: str | None = None


class ChatChoice(Struct):
    """`message` comes from a server that does not stream: everything at once."""

    delta: ChoiceDelta | None = None
    finish_reason: str | None = None
    index: int | None = None
    message: ChoiceDelta | None = None
    usage: Any = None


class _Groq(Struct):
    usage: Any = None
    error: Any = None


class Chunk(Struct):
    choices: list[ChatChoice] | None = None
    id: str | None = None
    usage: Any = None
    error: Any = None
    x_groq: _Groq | None = None


decode_fast: Callable[[str], FastChunk] = msgspec.json.Decoder(FastChunk).decode
decode_chunk: Callable[[str], Chunk] = msgspec.json.Decoder(Chunk).decode


def text_in(value: object) -> str:
    """The text of a thought in whatever form it comes."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(text_in, value))
    return text_in(value.get("text") or value.get("content")) if isinstance(value, dict) else ""


def thought_in(delta: ChoiceDelta) -> str:
    """Servers that say it twice, under two names, mean it once."""
    plain = delta.reasoning_content or text_in(delta.reasoning)
    if plain or not delta.reasoning_details:
        return plain
    return "".join(detail.text or detail.summary or "" for detail in delta.reasoning_details)


# --- usage ------------------------------------------------------------------------------------------------------------


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cached_tokens: int | None = None  # Moonshot
    reasoning_tokens: int | None = None


def usage_in(chunk: Chunk) -> object:
    """Wherever it is."""
    in_choices = next((choice.usage for choice in chunk.choices or () if choice.usage), None)
    return chunk.usage or (chunk.x_groq and chunk.x_groq.usage) or in_choices


def read_usage(found: object) -> TokenUsage | None:
    """The usage; None where the numbers cannot be read, which is no reason to lose an answer."""
    try:
        usage = msgspec.convert(found, _Usage, strict=False)
    except msgspec.ValidationError:
        return None
    read = usage.prompt_tokens_details or _InputDetails()
    written = usage.completion_tokens_details or _OutputDetails()
    cached = read.cached_tokens or usage.prompt_cache_hit_tokens or usage.cached_tokens or 0
    asked, answered = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return TokenUsage(
        input_tokens=asked,
        cached_input_tokens=cached,
        cache_write_input_tokens=read.cache_write_tokens or 0,
        output_tokens=answered,
        reasoning_output_tokens=written.reasoning_tokens or usage.reasoning_tokens or 0,
        total_tokens=asked + answered if usage.total_tokens is None else usage.total_tokens,
    )


# More than any model makes at once; a server that only ever begins calls must not fill the memory.
MAX_CALLS: Final = 1024
# Of all calls together; the same for one that never ends.
MAX_ARGUMENTS: Final = 32 * 1024 * 1024


class _Call(Struct):
    item_id: str
    index: int | None
    given_id: str = ""
    call_id: str = ""
    name: str = ""
    arguments: list[str] = []
    tool: ChatTool | None = None  # once the name is known, and the item has started


class _FunctionCall(Struct, omit_defaults=True):
    call_id: str
    name: str
    arguments: str
    type: str
    namespace: str | None = None


class _CustomCall(Struct, omit_defaults=True):
    call_id: str
    name: str
    input: str
    type: str
    namespace: str | None = None


class OpenCalls:
    """The calls of one response, in the order in which they began.

    Args:
        request: The request that it answers.
        new_id: Generates item ids.
    """

    def __init__(self, request: ModelRequest, new_id: Callable[[], str]) -> None:
        self._request = request
        self._new_id = new_id
        self._names: ChatToolNames | None = None
        self._calls: list[_Call] = []
        self._last: _Call | None = None
        self._size = 0
        self._used: set[str] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def grow(self, piece: CallPiece) -> list[ModelEvent] | None:
        """`receive` for what nearly every piece is: more arguments of the last call. None when it is not that."""
        call, function = self._last, piece.function
        if call is None or call.tool is None or function is None or call.index != piece.index:
            return None
        text = function.arguments
        if function.name or piece.id or not text or text.__class__ is not str:
            return None
        self._append(call, text)
        return [] if call.tool.is_custom else [ToolInputDelta(call.item_id, text)]

    def receive(self, piece: CallPiece) -> list[ModelEvent]:
        function = piece.function
        name = (function and function.name) or ""
        given = function.arguments if function is not None else None
        text = (given or "") if given is None or isinstance(given, str) else msgspec.json.encode(given).decode()
        call = self._find(piece, name)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                raise cut(f"the server began more than {MAX_CALLS} tool calls")
            call = self._last = _Call(self._new_id(), piece.index)
            self._calls.append(call)
        call.given_id = call.given_id or piece.id or ""
        call.name = call.name or name
        if text:
            self._append(call, text)
        events: list[ModelEvent] = []
        if call.tool is None:
            if not call.name:
                return []
            if self._names is None:
                self._names = ChatToolNames(self._request.tools)
            call.tool = self._names.tool(call.name)
            call.call_id = self._call_id(call.given_id)
            events.append(ItemStarted(_item(call, call.tool, "")))
            text = "".join(call.arguments)  # also what came before the name
        # Of a tool of free text the JSON around it is nobody's business: its input is passed on when it can be read.
        if text and not call.tool.is_custom:
            events.append(ToolInputDelta(call.item_id, text))
        return events

    def drop(self) -> None:
        """What came is not whole, and never will be."""
        self._calls.clear()
        self._last = None

    def done(self) -> list[ModelEvent]:
        """End all calls: they are whole."""
        events: list[ModelEvent] = []
        for call in self._calls:
            if call.tool is None:
                raise cut("the model made a tool call without the name of a tool")
            arguments = "".join(call.arguments).strip() or "{}"
            if call.tool.is_custom:
                arguments = free_text(arguments)
                events.append(ToolInputDelta(call.item_id, arguments))
            elif not any(call.arguments):
                events.append(ToolInputDelta(call.item_id, arguments))
            events.append(ItemDone(_item(call, call.tool, arguments)))
        self._calls.clear()
        self._last = None
        return events

    def _find(self, piece: CallPiece, name: str) -> _Call | None:
        """The open call that goes on with this piece; none when it begins a new one."""
        if piece.index is not None:
            call = next((call for call in reversed(self._calls) if call.index == piece.index), None)
            return None if call is None or _is_another(call, piece, name) else call
        if piece.id:
            for call in self._calls:
                if call.given_id == piece.id:
                    return None if _is_another(call, piece, name) else call
        return None if name or not self._calls else self._calls[-1]

    def _append(self, call: _Call, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ARGUMENTS:
            failure = cut(f"the arguments of tool calls are longer than {MAX_ARGUMENTS} characters")
            failure.retryable = False  # they would be as long again
            raise failure
        call.arguments.append(text)

    def _call_id(self, given: str) -> str:
        """The server's id, unless it gave none, or one that it gave before: results are found by it."""
        mark = msgspec.json.encode(given)
        if (
            not given
            or given in self._used
            or any(
                mark in bytes(item) if isinstance(item, Raw) else item.get("call_id") == given
                for item in reversed(self._request.input)
            )
        ):
            given = f"call_{self._new_id().removeprefix('item_')}"
        self._used.add(given)
        return given


def _is_another(call: _Call, piece: CallPiece, name: str) -> bool:
    """Whether a piece in the place of a call begins another. A name alone does not: some servers repeat it."""
    if not name or not call.name:
        return False
    if piece.id and call.given_id and piece.id != call.given_id:
        return True
    # Without an id that tells, another begins where the arguments of the last one are whole.
    arguments = call.arguments
    if piece.id and piece.id == call.given_id:
        return False
    if not arguments or not arguments[-1].endswith("}"):  # without a look at all of it each time
        return False
    try:
        msgspec.json.decode("".join(arguments), type=dict)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _item(call: _Call, tool: ChatTool, text: str) -> OutputItem:
    made: _FunctionCall | _CustomCall
    if tool.is_custom:
        made = _CustomCall(call.call_id, tool.name, text, "custom_tool_call", tool.namespace)
    else:
        made = _FunctionCall(call.call_id, tool.name, text, "function_call", tool.namespace)
    return read_item(Raw(msgspec.json.encode(made)), call.item_id)
