"""From events of the Messages API to model events, sans I/O.

It owns the open content blocks of one response. Each block is an item, done when the block ends; except that a tool
call is only done when it is certain to be complete: a response that runs out of tokens ends in the middle of a call as
if the call were whole.

First come the events of the API that we use. The names are the API's, shortened.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.http.sse import SseEvent
from treadle.llm.anthropic.blocks import WEB_SEARCH, AnthropicToolNames, OpaqueBlock, TextBlock, tool_names
from treadle.llm.anthropic.failure import ApiError, stopped, stream_failure
from treadle.llm.anthropic.messages import call_item_id
from treadle.llm.failure import cut
from treadle.llm.model import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
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
    SearchedFor,
    WebSearchItem,
)

# --- deltas: nearly all of the traffic -------------------------------------------------------------------------------


class TextPiece(Struct, gc=False, tag_field="type", tag="text_delta"):
    text: str


class InputPiece(Struct, gc=False, tag_field="type", tag="input_json_delta"):
    partial_json: str


class ThinkingPiece(Struct, gc=False, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignaturePiece(Struct, gc=False, tag_field="type", tag="signature_delta"):
    signature: str


class Citation(Struct):
    """A place that a text is taken from; those in documents of the request have no URL."""

    url: str = ""
    title: str | None = None
    encrypted_index: str | None = None


class CitationPiece(Struct, gc=False, tag_field="type", tag="citations_delta"):
    citation: Raw


class BlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextPiece | InputPiece | ThinkingPiece | SignaturePiece | CitationPiece


# --- all others ------------------------------------------------------------------------------------------------------


class OutputDetails(Struct):
    thinking_tokens: int | None = None


class AnthropicUsage(Struct):
    """Cumulative from the beginning of the response, in every event that has it."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class MessageStart(Struct):
    id: str = ""
    usage: AnthropicUsage | None = None


class StopDetails(Struct):
    category: str | None = None
    explanation: str | None = None


class MessageDelta(Struct):
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class MessageEvent(Struct):
    type: str
    index: int = -1
    message: MessageStart | None = None
    content_block: Raw = Raw()
    delta: Raw = Raw()
    usage: AnthropicUsage | None = None
    error: ApiError | None = None


class BlockStart(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw()


read_block_delta: Final[Callable[[str | Raw], BlockDelta]] = msgspec.json.Decoder(BlockDelta).decode
read_event: Final[Callable[[str | Raw], MessageEvent]] = msgspec.json.Decoder(MessageEvent).decode
read_citation: Final[Callable[[Raw], Citation]] = msgspec.json.Decoder(Citation).decode
read_delta: Final[Callable[[str | Raw], MessageDelta]] = msgspec.json.Decoder(MessageDelta).decode
read_block_start: Final[Callable[[str | Raw], BlockStart]] = msgspec.json.Decoder(BlockStart).decode


# More than any response has, of blocks and of text in them; a server that never ends must not fill the memory.
MAX_BLOCKS: Final = 4096
MAX_CHARS: Final = 64 * 1024 * 1024

Kind: TypeAlias = Literal["text", "thinking", "redacted", "call", "search", "other"]
# Of one message; more are no help to anybody.
MAX_CITATIONS: Final = 256


_object = msgspec.json.Decoder(dict[str, Raw])


class _Open(Struct):
    """A block that has begun. `started` is true once `ItemStarted` was given for it."""

    kind: Kind
    item_id: str
    start: BlockStart
    raw: Raw
    texts: list[str] = []
    signature: str = ""
    started: bool = False
    begun: int = 0  # where the text of the present block begins in that of the item
    tool: tuple[str | None, str, bool] = (None, "", False)  # namespace, name, whether its input is free text
    cited: list[dict[str, object]] = []
    parts: dict[int, list[Raw]] = {}  # the blocks of the item: where each begins, and its citations as they came


class AnthropicTranslator:
    """One response to `request`. `receive` raises the `ModelError` that the server reports; `end` raises if the stream
    was cut.

    `mark` distinguishes its items from those of another response to which the server gave the same id.
    """

    def __init__(self, request: ModelRequest, mark: str = "") -> None:
        self.completed: bool = False
        self._request = request
        self._names: AnthropicToolNames | None = None
        self._id = ""
        self._mark = f"_{mark}" if mark else ""
        self._open: dict[int, _Open] = {}
        self._seen: set[int] = set()  # indexes of all blocks so far: each is an item of its own
        self._held: list[_Open] = []  # calls that have ended, and may not be whole
        self._last: _Open | None = None  # a text that may go on, or a search that has no result yet
        self._failure: ModelError | None = None
        self._reason: str | None = None
        self._usage: AnthropicUsage | None = None
        self._chars = 0
        self._done = 0

    def receive(self, sse: SseEvent) -> list[ModelEvent]:
        data = sse.data
        try:
            event = read_block_delta(data)
        except (msgspec.DecodeError, RecursionError):
            return self._other(sse)
        block, delta = self._open.get(event.index), event.delta
        kind = None if block is None else block.kind
        # A delta of another kind than the block's belongs to nothing.
        if block is None:
            pass
        elif isinstance(delta, TextPiece):
            if kind == "text":
                return self._text(block, delta.text)
        elif isinstance(delta, InputPiece):
            if kind in ("call", "search", "other"):
                self._keep(block, delta.partial_json)
                streamed = kind == "call" and not block.tool[2] and delta.partial_json
                return [ToolInputDelta(block.item_id, delta.partial_json)] if streamed else []
        elif isinstance(delta, CitationPiece):
            if kind == "text" and self._cite(block, delta.citation):
                return []
        elif kind == "thinking":
            if isinstance(delta, ThinkingPiece):
                return self._thought(block, delta.thinking)
            block.signature += delta.signature
            return []
        return [UnknownEvent("content_block_delta", data)]

    def end(self) -> list[ModelEvent]:
        if self._failure is not None:
            raise self._failure
        if not self.completed:
            raise cut("stream closed before message_stop")
        return []

    def _text(self, block: _Open, text: str) -> list[ModelEvent]:
        if not text:
            return []
        begun: list[ModelEvent] = [] if block.started else [self._start(block)]  # before it has the text
        self._keep(block, text)
        return [*begun, TextDelta(block.item_id, text)]

    def _cite(self, block: _Open, given: Raw) -> bool:
        """A citation is of all the text of its block. It is noted as the Responses API does it; False for one that says
        of no page where it is from."""
        citation = read_citation(given)
        if citation.url and len(block.cited) < MAX_CITATIONS:
            source = {"type": "url_citation", "url": citation.url, "title": citation.title or ""}
            block.cited.append({**source, "start_index": block.begun})
            if citation.encrypted_index is not None:
                block.parts.setdefault(block.begun, []).append(given.copy())
        return bool(citation.url)

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
            events = self._translate(event)
        except (msgspec.DecodeError, RecursionError):
            if sse.event == "error":
                raise stream_failure(ApiError(message=sse.data)) from None
            return [UnknownEvent(sse.event, sse.data)]
        return [UnknownEvent(event.type, sse.data)] if events is None else events

    def _translate(self, event: MessageEvent) -> list[ModelEvent] | None:
        """The events of the model that an event is; None for one that is not known, or belongs to nothing."""
        match event.type:
            case "content_block_start":
                return self._block_start(event)
            case "content_block_stop":
                block = self._open.pop(event.index, None)
                if block is None:
                    return None
                if block.kind == "call" and not _is_whole(block):
                    self._held.append(block)
                    return []
                for source in block.cited:
                    source.setdefault("end_index", sum(map(len, block.texts)))
                if block.kind == "search":
                    self._last = block
                    return [self._start(block)]
                if block.kind == "text" and self._searches:
                    self._last = block
                    return []
                return self._end_block(block)
            case "message_start":
                if self._id:
                    return None
                message = event.message or MessageStart()
                self._id = message.id or f"msg_{os.urandom(12).hex()}"
                self._count(message.usage)
                return [Created(self._id)]
            case "message_delta":
                self._count(event.usage)
                delta = read_delta(event.delta) if bytes(event.delta) else MessageDelta()
                if delta.stop_reason is None:
                    return []
                self._reason = delta.stop_reason
                details = delta.stop_details or StopDetails()
                ended = self._end_last()
                self._failure = stopped(delta.stop_reason, details.explanation or details.category)
                if self._failure is not None:
                    if ended:  # what it has said first; then comes the end of the message
                        return ended
                    raise self._failure
                held, self._held = self._held, []
                self._done += len(held)
                return [*ended, *(ItemDone(self._item(block)) for block in held)]
            case "message_stop":
                if self._failure is not None:
                    raise self._failure
                if self._held:
                    raise cut("the response ended inside of a call")
                ended = self._end_last()
                self.completed = True
                paused = self._reason == "pause_turn" and self._done > 0  # else it would be asked the same for ever
                usage = None if self._usage is None else _counted(self._usage)
                return [*ended, Completed(self._id, usage, paused)]
            case "ping":
                return []
            case "error":
                raise stream_failure(event.error or ApiError())
        return None

    def _block_start(self, event: MessageEvent) -> list[ModelEvent] | None:
        index = event.index
        if index in self._seen or not bytes(event.content_block):
            return None
        if len(self._seen) >= MAX_BLOCKS:
            raise cut(f"the response has more than {MAX_BLOCKS} blocks")
        self._seen.add(index)
        start, raw = read_block_start(event.content_block), event.content_block.copy()
        kind = _KINDS.get(start.type, "other")
        if start.type == "server_tool_use" and start.name == WEB_SEARCH:
            kind = "search"
        last = self._last
        if last is not None and last.kind == kind == "text":
            # With citations an answer comes in many blocks, of a few words each: it is one message all the same.
            self._last, self._open[index] = None, last
            last.begun = sum(map(len, last.texts))
            last.parts.setdefault(last.begun, [])
            return self._text(last, start.text)
        ended = self._end_last()
        return [*ended, *self._begin(index, kind, start, raw)]

    def _end_last(self) -> list[ModelEvent]:
        last, self._last = self._last, None
        return [] if last is None else self._end_block(last)

    def _end_block(self, block: _Open) -> list[ModelEvent]:
        if not block.started:  # a text without a word
            return []
        self._done += 1
        ended: list[ModelEvent] = [ItemDone(self._item(block))]
        if any(block.parts.values()):
            opaque = OpaqueBlock(model=self._request.model, cited=_cited_blocks(block))
            raw = _raw({"type": "anthropic_block", "encrypted_content": opaque.packed()})
            sources = OtherItem(id=f"{block.item_id}_cited", raw=raw, type="anthropic_block")
            ended += [ItemStarted(sources), ItemDone(sources)]
        return ended

    @property
    def _searches(self) -> bool:
        """Whether the server may search the web for this response."""
        if self._names is None:
            self._names = tool_names(self._request.tools)
        return self._names.web_search is not None

    def _begin(self, index: int, kind: Kind, start: BlockStart, raw: Raw) -> list[ModelEvent]:
        if kind != "call":
            item_id = f"{self._id or 'msg'}{self._mark}_{index}"
            block = _Open(kind, item_id, start, raw, signature=start.signature)
        else:
            # A tool that was never offered keeps the name that the model gave it.
            if self._names is None:
                self._names = tool_names(self._request.tools)
            named = self._names.all.get(start.name)
            tool: tuple[str | None, str, bool] = (None, start.name, False)
            if named is not None:
                tool = (named.namespace, named.tool.name, named.tool.type == "custom")
            item_id = call_item_id("custom_tool_call" if tool[2] else "function_call", self._id + self._mark, index)
            block = _Open(kind, item_id, start, raw, tool=tool)
        self._open[index] = block
        if block.kind == "text":
            return self._text(block, start.text)
        if block.kind == "search":  # shown once it says what is searched for
            return []
        begun: list[ModelEvent] = [self._start(block)]
        return begun + self._thought(block, start.thinking) if block.kind == "thinking" else begun

    def _start(self, block: _Open) -> ItemStarted:
        block.started = True
        return ItemStarted(self._item(block))

    def _count(self, usage: AnthropicUsage | None) -> None:
        if usage is None:
            return
        known = self._usage or AnthropicUsage()
        for name in AnthropicUsage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                setattr(known, name, value)
        self._usage = known

    # --- items, in the neutral form ---

    def _item(self, block: _Open) -> OutputItem:
        """The item as far as it has come."""
        text = "".join(block.texts)
        match block.kind:
            case "text":
                said: dict[str, object] = {"type": "output_text", "text": text}
                if block.cited:
                    said["annotations"] = block.cited
                raw = _raw({"type": "message", "role": "assistant", "content": [said]})
                return MessageItem(id=block.item_id, raw=raw, role="assistant", text=text)
            case "thinking":
                return self._reasoning(block, text, OpaqueBlock(model=self._request.model, signature=block.signature))
            case "redacted":
                return self._reasoning(block, "", OpaqueBlock(model=self._request.model, redacted=block.start.data))
            case "call":
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
                # The one member of the input of a tool that takes free text; else all of it, for the tool to refuse.
                try:
                    written = msgspec.json.decode(arguments, type=dict[str, str]).get("input", arguments)
                except (msgspec.DecodeError, RecursionError):
                    written = arguments
                raw = _raw({"type": "custom_tool_call", **members, "input": written})
                return CustomToolCallItem(
                    id=block.item_id, raw=raw, call_id=call_id, name=name, namespace=namespace, input=written
                )
            case "other" | "search":
                opaque = OpaqueBlock(model=self._request.model, block=_with_input(block, text))
                raw = _raw({"type": "anthropic_block", "encrypted_content": opaque.packed()})
                if block.kind == "search":
                    action = SearchedFor("search", query=_query(text or _given_input(block)))
                    return WebSearchItem(id=block.item_id, raw=raw, type="anthropic_block", action=action)
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


def _cited_blocks(block: _Open) -> list[TextBlock]:
    """A message in the blocks that it came in. The API refuses one of blanks alone, so that is a part of another."""
    text = "".join(block.texts)
    blocks: list[TextBlock] = []
    ends = [*sorted({0, *block.parts}), len(text)]
    for begin, end in pairwise(ends):
        piece, citations = text[begin:end], block.parts.get(begin, [])
        if blocks and not (piece.strip() and blocks[-1].text.strip()):
            blocks[-1].text += piece
            blocks[-1].citations += citations
        else:
            blocks.append(TextBlock(text=piece, citations=[*citations]))
    return blocks


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


def _query(written: str) -> str | None:
    try:
        return msgspec.json.decode(written, type=dict[str, str]).get("query")
    except (msgspec.DecodeError, RecursionError):
        return None


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


def _counted(usage: AnthropicUsage) -> TokenUsage:
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
