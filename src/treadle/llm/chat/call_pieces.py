"""Tool calls that arrive in pieces: which piece belongs to which call, and the items that they become.

It owns the open calls of one response. A call is only done when the response is: until then it may not be complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.chat.chat_tools import Tool, ToolNames, free_text
from treadle.llm.chat.chunk import CallPiece
from treadle.llm.failure import cut
from treadle.llm.model import ItemDone, ItemStarted, JsonObject, ModelEvent, ModelRequest, ToolInputDelta
from treadle.llm.output_items import OutputItem, read_item

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
    tool: Tool | None = None  # once the name is known, and the item has started


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
        self._names: ToolNames | None = None
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
        text = _arguments(function.arguments) if function is not None else ""
        call = self._find(piece, name)
        if call is None:
            call = self._begin(piece)
        call.given_id = call.given_id or piece.id or ""
        call.name = call.name or name
        if text:
            self._append(call, text)
        return self._told(call, text)

    def drop(self) -> None:
        """What came is not whole, and never will be."""
        self._calls.clear()
        self._last = None

    def done(self) -> list[ModelEvent]:
        """All of them are whole."""
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

    def _begin(self, piece: CallPiece) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            raise cut(f"the server began more than {MAX_CALLS} tool calls")
        call = self._last = _Call(self._new_id(), piece.index)
        self._calls.append(call)
        return call

    def _told(self, call: _Call, text: str) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        if call.tool is None:
            if not call.name:
                return []
            call.tool = self._tool(call.name)
            call.call_id = self._call_id(call.given_id)
            events.append(ItemStarted(_item(call, call.tool, "")))
            text = "".join(call.arguments)  # also what came before the name
        # Of a tool of free text the JSON around it is nobody's business: its input is told when it can be read.
        if text and not call.tool.is_custom:
            events.append(ToolInputDelta(call.item_id, text))
        return events

    def _tool(self, name: str) -> Tool:
        if self._names is None:
            self._names = ToolNames(self._request.tools)
        return self._names.tool(name)

    def _call_id(self, given: str) -> str:
        """The server's id, unless it gave none, or one that it gave before: results are found by it."""
        if not given or given in self._used or _occurs(given, self._request.input):
            given = f"call_{self._new_id().removeprefix('item_')}"
        self._used.add(given)
        return given


def _is_another(call: _Call, piece: CallPiece, name: str) -> bool:
    """Whether a piece in the place of a call begins another. A name alone does not: some servers repeat it."""
    if not name or not call.name:
        return False
    if piece.id and call.given_id and piece.id != call.given_id:
        return True
    return not (piece.id and piece.id == call.given_id) and _is_whole(call.arguments)


def _is_whole(arguments: list[str]) -> bool:
    if not arguments or not arguments[-1].endswith("}"):  # without a look at all of it each time
        return False
    try:
        msgspec.json.decode("".join(arguments), type=dict)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _occurs(call_id: str, items: Sequence[JsonObject]) -> bool:
    mark = msgspec.json.encode(call_id)
    return any(
        mark in bytes(item) if isinstance(item, Raw) else item.get("call_id") == call_id for item in reversed(items)
    )


def _arguments(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()


def _item(call: _Call, tool: Tool, text: str) -> OutputItem:
    made: _FunctionCall | _CustomCall
    if tool.is_custom:
        made = _CustomCall(call.call_id, tool.name, text, "custom_tool_call", tool.namespace)
    else:
        made = _FunctionCall(call.call_id, tool.name, text, "function_call", tool.namespace)
    return read_item(Raw(msgspec.json.encode(made)), call.item_id)
