"""The offline model: no network and no key, but real tool calls.

It owns the script: look around, write a note, read it, sign it, report. It is stateless: everything it knows is in the
request, so the same request always gets the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Raw

from treadle.llm.model import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelRequest,
    TextDelta,
    TokenUsage,
)
from treadle.llm.offline_plan import Call, decide
from treadle.llm.offline_view import View, read_view
from treadle.llm.output_items import MessageItem, OutputItem, read_item

# About a line: few enough events to be cheap, enough to see a text grow.
DELTA_CHARS: Final = 24


class OfflineModel:
    """A `Model` without any dependencies."""

    def __init__(self) -> None:
        self._closed = False

    def stream(self, request: ModelRequest) -> OfflineStream:
        return OfflineStream(self, request)

    async def close(self) -> None:
        self._closed = True


class OfflineStream:
    """A `ModelStream` that plays a script as events are requested."""

    def __init__(self, model: OfflineModel, request: ModelRequest) -> None:
        self._model = model
        self._events: Iterator[ModelEvent] = play(request)
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        # A real model makes others wait for the network; this one must let them run all the same.
        await asyncio.sleep(0)
        if self._closed:
            raise StopAsyncIteration
        if self._model._closed:
            self._closed = True
            raise ModelError("the offline model is closed; make a new one")
        for event in self._events:
            return event
        self._closed = True
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def play(request: ModelRequest) -> Iterator[ModelEvent]:
    """The whole response to a request."""
    view = read_view(request)
    mark = _mark(request, view)
    yield Created(f"resp_offline_{mark}")
    written = 0
    step = decide(view)
    items = [_message(step, mark)] if isinstance(step, str) else [_call(call, mark, n) for n, call in enumerate(step)]
    for item in items:
        yield from _item_events(item)
        written += len(bytes(item.raw))
    # No tokenizer: four bytes are about one token.
    read, wrote = view.size // 4, written // 4
    usage = TokenUsage(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)
    yield Completed(f"resp_offline_{mark}", usage)


def _item_events(item: OutputItem) -> Iterator[ModelEvent]:
    if not isinstance(item, MessageItem):
        yield ItemStarted(item)
        yield ItemDone(item)
        return
    yield ItemStarted(_read(_message_json("", item.id), item.id))
    for start in range(0, len(item.text), DELTA_CHARS):
        yield TextDelta(item.id, item.text[start : start + DELTA_CHARS])
    yield ItemDone(item)


def _mark(request: ModelRequest, view: View) -> str:
    """A part of ids that differs between the requests of a thread and between threads."""
    from hashlib import blake2b  # loaded with the first turn

    key = (request.prompt_cache_key or "").encode("utf-8", "surrogatepass")
    return blake2b(view.fingerprint + b"\0" + key, digest_size=8).hexdigest()


def _message(text: str, mark: str) -> OutputItem:
    item_id = f"msg_offline_{mark}"
    return _read(_message_json(text, item_id), item_id)


def _message_json(text: str, item_id: str) -> dict[str, object]:
    content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    return {"type": "message", "id": item_id, "role": "assistant", "content": content}


def _call(call: Call, mark: str, number: int) -> OutputItem:
    common = {"call_id": f"call_offline_{mark}_{number}", "name": call.name}
    if call.free_form:
        item_id = f"ctc_offline_{mark}_{number}"
        return _read({"type": "custom_tool_call", "id": item_id, "input": call.text, **common}, item_id)
    item_id = f"fc_offline_{mark}_{number}"
    return _read({"type": "function_call", "id": item_id, "arguments": call.text, **common}, item_id)


def _read(item: dict[str, object], item_id: str) -> OutputItem:
    return read_item(Raw(msgspec.json.encode(item)), item_id)
