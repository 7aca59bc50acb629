"""From events of the Messages API to model events, sans I/O.

It owns the open content blocks of one response. Each block is an item, done when the block ends; except that a tool
call is only done when it is certain to be complete: a response that runs out of tokens ends in the middle of a call as
if the call were whole.
"""

from __future__ import annotations

import os
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.llm.anthropic.failure import ApiError, stopped, stream_failure
from treadle.llm.anthropic.incoming import (
    BlockStart,
    Delta,
    Event,
    InputPiece,
    Message,
    OutputDetails,
    SignaturePiece,
    StopDetails,
    TextPiece,
    ThinkingPiece,
    Usage,
    read_block_delta,
    read_block_start,
    read_delta,
    read_event,
)
from treadle.llm.anthropic.messages import call_item_id
from treadle.llm.anthropic.names import ToolNames, tool_names
from treadle.llm.anthropic.opaque_block import OpaqueBlock
from treadle.llm.failure import cut
from treadle.llm.model import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelRequest,
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
)
from treadle.llm.sse import SseEvent

# More than any response has, of blocks and of text in them; a server that never ends must not fill the memory.
MAX_BLOCKS: Final = 4096
MAX_CHARS: Final = 64 * 1024 * 1024

Kind: TypeAlias = Literal["text", "thinking", "redacted", "call", "other"]


_object = msgspec.json.Decoder(dict[str, Raw])


class _Open(Struct):
    """A block that has begun. `started` is true once its item was announced."""

    kind: Kind
    item_id: str
    start: BlockStart
    raw: Raw
    texts: list[str] = []
    signature: str = ""
    started: bool = False
    tool: tuple[str | None, str, bool] = (None, "", False)  # namespace, name, whether its input is free text


class Translator:
    """One response to `request`. `receive` raises the `ModelError` that the server reports; `end` raises if the stream
    was cut.

    `mark` distinguishes its items from those of another response to which the server gave the same id.
    """

    def __init__(self, request: ModelRequest, mark: str = "") -> None:
        self.completed: bool = False
        self._request = request
        self._names: ToolNames | None = None
        self._id = ""
        self._mark = f"_{mark}" if mark else ""
        self._open: dict[int, _Open] = {}
        self._seen: set[int] = set()  # indexes of all blocks so far: each is an item of its own
        self._held: list[_Open] = []  # calls that have ended, and may not be whole
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._chars = 0
        self._done = 0

    def receive(self, sse: SseEvent) -> list[ModelEvent]:
        data = sse.data
        try:
            event = read_block_delta(data)
        except (msgspec.DecodeError, RecursionError):
            return self._other(sse)
        block = self._open.get(event.index)
        told = None if block is None else self._grow(block, event.delta)
        return [UnknownEvent("content_block_delta", data)] if told is None else told

    def end(self) -> list[ModelEvent]:
        if not self.completed:
            raise cut("stream closed before message_stop")
        return []

    # --- deltas ---

    def _grow(
        self, block: _Open, delta: TextPiece | InputPiece | ThinkingPiece | SignaturePiece
    ) -> list[ModelEvent] | None:
        """None for a delta of another kind than the block's."""
        kind = block.kind
        if isinstance(delta, TextPiece):
            return self._text(block, delta.text) if kind == "text" else None
        if isinstance(delta, InputPiece):
            if kind not in ("call", "other"):
                return None
            self._keep(block, delta.partial_json)
            streamed = kind == "call" and not block.tool[2] and delta.partial_json
            return [ToolInputDelta(block.item_id, delta.partial_json)] if streamed else []
        if kind != "thinking":
            return None
        if isinstance(delta, ThinkingPiece):
            return self._thought(block, delta.thinking)
        block.signature += delta.signature
        return []

    def _text(self, block: _Open, text: str) -> list[ModelEvent]:
        if not text:
            return []
        begun: list[ModelEvent] = [] if block.started else [self._start(block)]  # before it has the text
        self._keep(block, text)
        return [*begun, TextDelta(block.item_id, text)]

    def _thought(self, block: _Open, text: str) -> list[ModelEvent]:
        if not text:
            return []
        first = not block.texts
        self._keep(block, text)
        grown = ReasoningSummaryDelta(block.item_id, 0, text)
        return [ReasoningSummaryPart(block.item_id, 0), grown] if first else [grown]

    def _keep(self, block: _Open, text: str) -> None:
        self._chars += len(text)
        if self._chars > MAX_CHARS:
            failure = cut(f"the response is longer than {MAX_CHARS} characters")
            failure.retryable = False  # it would be as long again
            raise failure
        block.texts.append(text)

    # --- the rest ---

    def _other(self, sse: SseEvent) -> list[ModelEvent]:
        if sse.data == "[DONE]":
            return []
        try:
            event = read_event(sse.data)
            told = self._translate(event)
        except (msgspec.DecodeError, RecursionError):
            if sse.event == "error":
                raise stream_failure(ApiError(message=sse.data)) from None
            return [UnknownEvent(sse.event, sse.data)]
        return [UnknownEvent(event.type, sse.data)] if told is None else told

    def _translate(self, event: Event) -> list[ModelEvent] | None:
        """None for an event that is not known, or belongs to nothing."""
        match event.type:
            case "content_block_start":
                return self._block_start(event)
            case "content_block_stop":
                return self._block_stop(event.index)
            case "message_start":
                return self._message_start(event.message or Message())
            case "message_delta":
                self._count(event.usage)
                return self._message_delta(read_delta(event.delta) if bytes(event.delta) else Delta())
            case "message_stop":
                return self._message_stop()
            case "ping":
                return []
            case "error":
                raise stream_failure(event.error or ApiError())
        return None

    def _message_start(self, message: Message) -> list[ModelEvent] | None:
        if self._id:
            return None
        self._id = message.id or f"msg_{os.urandom(12).hex()}"
        self._count(message.usage)
        return [Created(self._id)]

    def _block_start(self, event: Event) -> list[ModelEvent] | None:
        index = event.index
        if index in self._seen or not bytes(event.content_block):
            return None
        if len(self._seen) >= MAX_BLOCKS:
            raise cut(f"the response has more than {MAX_BLOCKS} blocks")
        self._seen.add(index)
        start = read_block_start(event.content_block)
        block = self._opened(index, start, event.content_block.copy())
        self._open[index] = block
        if block.kind == "text":
            return self._text(block, start.text)
        begun: list[ModelEvent] = [self._start(block)]
        return begun + self._thought(block, start.thinking) if block.kind == "thinking" else begun

    def _opened(self, index: int, start: BlockStart, raw: Raw) -> _Open:
        kind = _KINDS.get(start.type, "other")
        if kind != "call":
            return _Open(kind, f"{self._id or 'msg'}{self._mark}_{index}", start, raw, signature=start.signature)
        tool = self._tool(start.name)
        item_id = call_item_id("custom_tool_call" if tool[2] else "function_call", self._id + self._mark, index)
        return _Open(kind, item_id, start, raw, tool=tool)

    def _tool(self, wire: str) -> tuple[str | None, str, bool]:
        if self._names is None:
            self._names = tool_names(self._request.tools)
        named = self._names.all.get(wire)
        return (None, wire, False) if named is None else (named.namespace, named.tool.name, named.tool.type == "custom")

    def _start(self, block: _Open) -> ItemStarted:
        block.started = True
        return ItemStarted(self._item(block))

    def _block_stop(self, index: int) -> list[ModelEvent] | None:
        block = self._open.pop(index, None)
        if block is None:
            return None
        if block.kind == "call" and not _is_whole(block):
            self._held.append(block)
            return []
        if not block.started:  # a text without a word
            return []
        self._done += 1
        return [ItemDone(self._item(block))]

    def _message_delta(self, delta: Delta) -> list[ModelEvent]:
        if delta.stop_reason is None:
            return []
        self._reason = delta.stop_reason
        details = delta.stop_details or StopDetails()
        failure = stopped(delta.stop_reason, details.explanation or details.category)
        if failure is not None:
            raise failure
        held, self._held = self._held, []
        self._done += len(held)
        return [ItemDone(self._item(block)) for block in held]

    def _message_stop(self) -> list[ModelEvent]:
        if self._held:
            raise cut("the response ended inside of a call")
        self.completed = True
        paused = self._reason == "pause_turn" and self._done > 0  # else it would be asked the same for ever
        return [Completed(self._id, None if self._usage is None else _counted(self._usage), paused)]

    def _count(self, usage: Usage | None) -> None:
        if usage is None:
            return
        known = self._usage or Usage()
        for name in Usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                setattr(known, name, value)
        self._usage = known

    # --- items, in the neutral form ---

    def _item(self, block: _Open) -> OutputItem:
        """As far as it has come."""
        text = "".join(block.texts)
        match block.kind:
            case "text":
                raw = _raw({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
                return MessageItem(id=block.item_id, raw=raw, role="assistant", text=text)
            case "thinking":
                return self._reasoning(block, text, OpaqueBlock(model=self._request.model, signature=block.signature))
            case "redacted":
                return self._reasoning(block, "", OpaqueBlock(model=self._request.model, redacted=block.start.data))
            case "call":
                return _call(block, text)
            case "other":
                opaque = OpaqueBlock(model=self._request.model, block=_with_input(block, text))
                raw = _raw({"type": "anthropic_block", "encrypted_content": opaque.packed()})
                return OtherItem(id=block.item_id, raw=raw, type="anthropic_block")

    def _reasoning(self, block: _Open, text: str, opaque: OpaqueBlock) -> ReasoningItem:
        summary = [{"type": "summary_text", "text": text}] if text else []
        raw = _raw({"type": "reasoning", "summary": summary, "encrypted_content": opaque.packed()})
        return ReasoningItem(id=block.item_id, raw=raw, summary=(text,) if text else ())


_KINDS: Final[dict[str, Kind]] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "redacted",
    "tool_use": "call",
}


def _call(block: _Open, text: str) -> FunctionCallItem | CustomToolCallItem:
    namespace, name, free = block.tool
    arguments = text or _given_input(block)
    call_id = block.start.id or block.item_id
    members: dict[str, object] = {"id": block.item_id, "call_id": call_id, "name": name}
    if namespace is not None:
        members["namespace"] = namespace
    if not free:
        raw = _raw({"type": "function_call", **members, "arguments": arguments})
        return FunctionCallItem(
            id=block.item_id, raw=raw, call_id=call_id, name=name, namespace=namespace, arguments=arguments
        )
    written = _free_text(arguments)
    raw = _raw({"type": "custom_tool_call", **members, "input": written})
    return CustomToolCallItem(id=block.item_id, raw=raw, call_id=call_id, name=name, namespace=namespace, input=written)


def _is_whole(block: _Open) -> bool:
    """Whether the input of a call cannot have been cut: nothing at all may also be the beginning of something."""
    text = "".join(block.texts)
    try:
        return bool(_object.decode(text)) if text else _given_input(block) != "{}"
    except (msgspec.DecodeError, RecursionError):
        return False


def _given_input(block: _Open) -> str:
    """What some servers give at once; `{}` from those that send it in pieces, and for a call without arguments."""
    given = bytes(block.start.input)
    return given.decode() if given.strip() not in (b"", b"null", b'""') else "{}"


def _free_text(arguments: str) -> str:
    """The one member of the input of a tool that takes free text; else all of it, for the tool to refuse."""
    try:
        read = msgspec.json.decode(arguments, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return read.get("input", arguments)


def _with_input(block: _Open, text: str) -> Raw:
    if not text:
        return block.raw
    try:
        msgspec.json.decode(text)
        return _raw({**_object.decode(block.raw), "input": Raw(text.encode())})
    except (msgspec.DecodeError, RecursionError):
        return block.raw


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _counted(usage: Usage) -> TokenUsage:
    """`input_tokens` of this API is without what was read from the cache or written to it."""
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    tokens = (usage.input_tokens or 0) + read + written
    output = usage.output_tokens or 0
    details = usage.output_tokens_details or OutputDetails()
    return TokenUsage(
        input_tokens=tokens,
        cached_input_tokens=read,
        cache_write_input_tokens=written,
        output_tokens=output,
        reasoning_output_tokens=details.thinking_tokens or 0,
        total_tokens=tokens + output,
    )
