"""From chunks of the Chat Completions API to model events, sans I/O.

It owns the open items of one response. The API has no items: a response is split into reasoning, message and calls
here, in the order in which they arrive.

`ThinkTags` splits `<think>…</think>` off the beginning of an answer, for servers that do not separate reasoning from
text. Such a tag later in an answer is text: the model may be writing about tags.
"""

from __future__ import annotations

import os
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.http.sse import SseEvent
from treadle.llm.chat.chunk import (
    ChoiceDelta,
    OpenCalls,
    decode_chunk,
    decode_fast,
    read_usage,
    text_in,
    thought_in,
    usage_in,
)
from treadle.llm.chat.failure import find_error, read_error, stream_failure
from treadle.llm.failure import ErrorDetail, cut, failed, incomplete
from treadle.llm.model import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    UnknownEvent,
)
from treadle.llm.output_items import OutputItem, read_item

Piece: TypeAlias = tuple[Literal["text", "thought"], str]

_TAGS: Final = {"<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>"}


class ThinkTags:
    """Feed it the text of one answer. Once `settled`, everything that follows is text and need not be fed."""

    __slots__ = ("_close", "_held", "settled")

    def __init__(self) -> None:
        self.settled: bool = False
        self._close: str | None = None  # the tag that ends the thought we are in
        self._held = ""  # what may be the beginning of a tag

    @property
    def holds(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    def receive(self, text: str) -> list[Piece]:
        text = self._held + text
        self._held = ""
        if self.settled:
            return [("text", text)]
        if self._close is not None:
            return self._inside(text, self._close)
        # Nothing but blanks has come so far: it may begin with a tag, or with a part of one.
        begun = text.lstrip()
        for opening, closing in _TAGS.items():
            if begun.startswith(opening):
                self._close = closing
                return self._inside(begun.removeprefix(opening), closing)
            if opening.startswith(begun):
                self._held = text
        if self._held:
            return []
        self.settled = True
        return [("text", text)]

    def end(self) -> list[Piece]:
        """What was held back."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [("text" if self._close is None else "thought", held)]

    def _inside(self, text: str, closing: str) -> list[Piece]:
        thought, found, rest = text.partition(closing)
        if found:
            self.settled = True
            return [("thought", thought), ("text", rest)]
        keep = next((size for size in range(len(closing) - 1, 0, -1) if text.endswith(closing[:size])), 0)
        if keep:
            self._held = text[-keep:]
            text = text[:-keep]
        return [("thought", text)]


# Most characters of one answer: far more than any model writes, so a server that never ends is noticed.
MAX_ANSWER: Final = 32 * 1024 * 1024

# Ends that are none, in the words of the Responses API.
_INCOMPLETE: Final = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "model_length": "max_output_tokens",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
_BROKEN: Final = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})


class _OpenText(Struct):
    kind: Literal["text", "thought"]
    item_id: str
    pieces: list[str] = []


class ChatTranslator:
    """One response to `request`."""

    def __init__(self, request: ModelRequest) -> None:
        self.completed: bool = False
        self._id: str | None = None  # of the response, once it began
        self._open: _OpenText | None = None
        self._calls = OpenCalls(request, _new_id)
        self._tags: ThinkTags | None = ThinkTags()  # until it is settled that no tag follows
        self._blank = {"text": "", "thought": ""}  # before an item: whether there will be one is not known yet
        self._size = 0
        self._usage: object = None
        self._finished = False
        self._failure: ModelError | None = None

    def receive(self, sse: SseEvent) -> list[ModelEvent]:
        try:
            choices = decode_fast(sse.data).choices
        except (msgspec.DecodeError, RecursionError):
            return self._rest(sse)
        if not choices or len(choices) != 1:
            return self._rest(sse)
        choice = choices[0]
        delta = choice.delta
        if delta is None or choice.finish_reason or choice.index or delta.reasoning is not None:
            return self._rest(sse)
        # Nearly always what is open goes on, and nothing else happens.
        text, thought, pieces, opened = delta.content, delta.reasoning_content, delta.tool_calls, self._open
        if pieces is not None:
            alone = len(pieces) == 1 and opened is None and not (text or thought)
            grown = self._calls.grow(pieces[0]) if alone and not (self._tags and self._tags.holds) else None
            return self._rest(sse) if grown is None else grown
        if opened is None or (text and thought):
            return self._rest(sse)
        if text and opened.kind == "text" and self._tags is None:
            return [self._grown(opened, text)]
        if thought and opened.kind == "thought":
            return [self._grown(opened, thought)]
        return self._rest(sse)

    def _rest(self, sse: SseEvent) -> list[ModelEvent]:
        try:
            chunk = decode_chunk(sse.data)
        except (msgspec.DecodeError, RecursionError):
            return self._other(sse)
        if chunk.choices is None and usage_in(chunk) is None:
            return self._other(sse)
        if chunk.error or (chunk.x_groq is not None and chunk.x_groq.error):
            error = find_error({"error": chunk.error or (chunk.x_groq and chunk.x_groq.error)})
            assert error is not None
            raise stream_failure(error)
        self._usage = usage_in(chunk) or self._usage
        events: list[ModelEvent] = []
        if self._id is None and (chunk.id or chunk.choices):
            self._id = chunk.id or ""
            events.append(Created(self._id))
        for choice in chunk.choices or ():
            if choice.index:
                continue  # we ask for one answer only
            delta = choice.delta or choice.message
            if delta is not None:
                self._delta(delta, events)
            reason = choice.finish_reason or ("stop" if choice.message is not None else None)
            if reason:
                self._finish(reason, events)
        return events

    @property
    def may_end(self) -> bool:
        """Without `[DONE]`: the response is whole if it said why it ended, and no call began after that."""
        return self._finished and not len(self._calls)

    def end(self) -> list[ModelEvent]:
        if self.completed:
            return []
        if not self.may_end:
            raise self._failure or cut("stream closed before finish_reason")
        return self._complete()

    def _other(self, sse: SseEvent) -> list[ModelEvent]:
        if sse.data.strip() == "[DONE]":
            return self._complete()
        try:
            read = msgspec.json.decode(sse.data)
        except (msgspec.DecodeError, RecursionError):
            read = None
        error = read_error(sse.data) if sse.event == "error" else find_error(read)
        if error is None:
            return [UnknownEvent(sse.event, sse.data)]
        raise stream_failure(error)

    def _delta(self, delta: ChoiceDelta, events: list[ModelEvent]) -> None:
        if thought := thought_in(delta):
            self._grow("thought", thought, events)
        content = delta.content
        if isinstance(content, str):
            if content:
                self._said("text", content, events)
        else:
            for part in content or ():  # as Mistral has it
                if part.thinking:
                    self._said("thought", text_in(part.thinking), events)
                else:
                    self._said("text", part.text or "", events)
        if delta.refusal:
            self._said("text", delta.refusal, events)
        for piece in delta.tool_calls or ():
            self._flush(events)
            self._close(events)
            self._blank["text"] = ""
            events += self._calls.receive(piece)

    def _said(self, kind: Literal["text", "thought"], text: str, events: list[ModelEvent]) -> None:
        """Content, in which thoughts may be."""
        tags = self._tags
        if kind == "thought" or tags is None:
            self._grow(kind, text, events)
            return
        for found, piece in tags.receive(text):
            self._grow(found, piece, events)
        if tags.settled:
            self._tags = None

    def _grow(self, kind: Literal["text", "thought"], text: str, events: list[ModelEvent]) -> None:
        opened = self._open
        if opened is None or opened.kind != kind:
            # Line ends between a thought and a call are no message, and none begins with them.
            text = (self._blank[kind] + text).lstrip("\r\n")
            if not text.strip():
                self._blank[kind] = text
                return
            self._blank[kind] = ""
            self._close(events)
            opened = self._open = _OpenText(kind, _new_id())
            events.append(ItemStarted(_item(kind, "", opened.item_id)))
        if text:
            events.append(self._grown(opened, text))

    def _grown(self, opened: _OpenText, text: str) -> ModelEvent:
        self._size += len(text)
        if self._size > MAX_ANSWER:
            failure = cut(f"the answer is longer than {MAX_ANSWER} characters")
            failure.retryable = False  # it would be as long again
            raise failure
        opened.pieces.append(text)
        if opened.kind == "text":
            return TextDelta(opened.item_id, text)
        return ReasoningDelta(opened.item_id, 0, text)

    def _flush(self, events: list[ModelEvent]) -> None:
        """No more content, for now: what looked like the beginning of a tag was none."""
        if self._tags is not None:
            for kind, text in self._tags.end():
                self._grow(kind, text, events)

    def _close(self, events: list[ModelEvent]) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            events.append(ItemDone(_item(opened.kind, "".join(opened.pieces), opened.item_id)))

    def _finish(self, reason: str, events: list[ModelEvent]) -> None:
        self._flush(events)
        self._close(events)
        self._finished = True
        if reason in _INCOMPLETE:
            self._calls.drop()
            self._failure = incomplete(_INCOMPLETE[reason])
        elif reason in _BROKEN:
            self._calls.drop()
            self._failure = failed(ErrorDetail(message=f"the server gave up: {reason}"))
        else:
            events += self._calls.done()

    def _complete(self) -> list[ModelEvent]:
        if self._failure is not None:
            raise self._failure
        if self._id is None:
            raise cut("the server ended the response before it said anything")
        events: list[ModelEvent] = []
        self._finish("stop", events)
        self.completed = True
        return [*events, Completed(self._id, None if self._usage is None else read_usage(self._usage))]


def _item(kind: Literal["text", "thought"], text: str, item_id: str) -> OutputItem:
    """In the form that goes back as input of the next request, to whichever provider."""
    raw: dict[str, object]
    if kind == "text":
        content = [{"type": "output_text", "text": text}] if text else []
        raw = {"type": "message", "role": "assistant", "content": content}
    else:
        content = [{"type": "reasoning_text", "text": text}] if text else []
        raw = {"type": "reasoning", "summary": [], "content": content}
    return read_item(Raw(msgspec.json.encode(raw)), item_id)


def _new_id() -> str:
    return f"item_{os.urandom(12).hex()}"
