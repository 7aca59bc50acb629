"""One response of a model, as items of a turn.

It owns the way from model events to items and history, and the retries of a response that broke off. Calls are handed
on as soon as the model has written them; what they do is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from msgspec import structs

from treadle.agent.event import DeltaStream
from treadle.agent.model_failures import retry_info
from treadle.agent.turn.turn import Turn
from treadle.agent.turn.turn_items import OpenItem
from treadle.llm import (
    Completed,
    CustomToolCallItem,
    FunctionCallItem,
    ItemDone,
    ItemStarted,
    MessageItem,
    ModelError,
    ModelEvent,
    ModelRequest,
    OtherItem,
    OutputItem,
    ReasoningDelta,
    ReasoningItem,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    TextDelta,
    TokenUsage,
    ToolSearchCallItem,
    Waiting,
    WebSearchItem,
)
from treadle.llm.failure import pause_after, was_retried
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    FindInPageWebSearchAction,
    KnownItem,
    OpenPageWebSearchAction,
    OtherWebSearchAction,
    ReasoningThreadItem,
    SearchWebSearchAction,
    WebSearchAction,
    WebSearchThreadItem,
)
from treadle.protocol.app.notifications import (
    AgentMessageDeltaNotification,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
)
from treadle.protocol.app.turns import TurnError

logger: logging.Logger = logging.getLogger(__name__)
KINDS: Final[Mapping[type, str]] = {
    FunctionCallItem: "function_call",
    CustomToolCallItem: "custom_tool_call",
    ToolSearchCallItem: "tool_search_call",
}
ModelCall: TypeAlias = FunctionCallItem | CustomToolCallItem | ToolSearchCallItem
OnCall: TypeAlias = Callable[[ModelCall], None]
# Between two looks at whether the listeners keep up.
CHECK_EVERY: Final = 256


class Sampling:
    """Reads one response. `usage` is None until the model has said it; `paused` when the model has more to say."""

    def __init__(self, turn: Turn, on_call: OnCall | None = None, *, silent: bool = False) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._on_call = on_call
        self._silent = silent  # items are not shown: a summary, say
        self._open: set[str] = set()
        self._growing: OpenItem | None = None  # the message that the last delta was of
        self._origin = ""
        self.usage: TokenUsage | None = None
        self.paused: bool = False
        self.text: str = ""

    async def run(self, request: ModelRequest) -> None:
        """Read the response to its end. Raises `ModelError`; items that were begun are dropped then."""
        count, began = 0, time.monotonic()
        model = self._thread.services.model_for(self._turn.settings)
        self._origin = self._thread.origin
        fields: dict[str, object] = {"model": request.model}
        hooks = None if self._silent or self._turn.side is not None else self._thread.hooks
        if hooks is not None:
            await hooks.before_request(self._turn)
        try:
            async with model.stream(request) as events:
                async for event in events:
                    self._receive(event)
                    count += 1
                    if count % CHECK_EVERY == 0:
                        await self._thread.subscribers.wait_for_room()
            if logger.isEnabledFor(logging.INFO):
                if self.usage is not None:
                    fields |= {"input_tokens": self.usage.input_tokens, "output_tokens": self.usage.output_tokens}
                logger.info("model answered", {**fields, "duration_ms": int((time.monotonic() - began) * 1000)})
        except ModelError as error:
            # Not its message: providers repeat in it what they were sent.
            fields |= {"kind": error.kind, "status": error.http_status}
            logger.info("model failed", {**fields, "duration_ms": int((time.monotonic() - began) * 1000)})
            self._growing = None
            for item_id in tuple(self._open):
                self._turn.items.drop(item_id)
            if hooks is not None:
                await hooks.after_request(self._turn, "failed", error.message)
            raise
        except asyncio.CancelledError:
            if hooks is not None:
                await hooks.after_request(self._turn, "cancelled")
            raise
        finally:
            self._turn.answered = self._turn.answered or count > 0
        if hooks is not None:
            await hooks.after_request(self._turn, "completed", usage=self.usage)

    def _receive(self, event: ModelEvent) -> None:
        match event:
            case TextDelta():
                self._text_delta(event)
            case ItemStarted():
                self._item_started(event.item)
            case ItemDone():
                self._item_done(event.item)
            case ReasoningSummaryPart():
                self._reasoning_part(event)
            case ReasoningSummaryDelta() | ReasoningDelta():
                opened = self._find(event.item_id)
                if opened is not None:
                    summary = isinstance(event, ReasoningSummaryDelta)
                    _part(opened.summary if summary else opened.content, event.index).append(event.delta)
                    stream = self._stream(opened, "summary" if summary else "content", event.index)
                    self._thread.journal.append(stream, event.delta)
            case Completed():
                self.usage = event.usage
                self.paused = event.paused
            case _:
                pass

    def _text_delta(self, event: TextDelta) -> None:
        """Publish a delta. There may be one for each word, and nearly all are of the item of the one before."""
        if self._growing is None or self._growing.item.id != event.item_id:
            self._growing = self._find(event.item_id)
            if self._growing is None:
                return
            self._text_stream = self._stream(self._growing, "text", 0)
        self._growing.texts.append(event.delta)
        self._thread.journal.append(self._text_stream, event.delta)

    def _find(self, item_id: str) -> OpenItem | None:
        return None if self._silent else self._turn.items.find(item_id)

    def _item_started(self, item: OutputItem) -> None:
        shown = self._shown(item)
        if shown is not None and not self._silent:
            self._open.add(item.id)
            self._turn.items.start(shown)

    def _item_done(self, item: OutputItem) -> None:
        self._growing = None
        if isinstance(item, MessageItem):
            self.text = item.text
        if self._silent:
            return
        origin = self._origin if isinstance(item, ReasoningItem | ToolSearchCallItem | OtherItem) else None
        writes = self._turn.add_history([item.raw], origin)
        shown = self._shown(item)
        if shown is not None and item.id in self._open:
            self._open.discard(item.id)
            self._turn.items.complete(shown, *writes)
        else:
            self._thread.journal.write(*writes)
        if isinstance(item, ModelCall):
            self._turn.calls[item.call_id] = KINDS[type(item)]
            if self._on_call is not None:
                self._on_call(item)

    def _shown(self, item: OutputItem) -> KnownItem | None:
        """The item that people see; calls are shown by what they do. What is said in a side conversation is for the
        work alone, which shows what it makes of it."""
        match item:
            case MessageItem():
                if self._turn.side is not None:
                    return None
                return AgentMessageThreadItem(id=item.id, text=item.text, phase=item.phase)
            case ReasoningItem():
                return ReasoningThreadItem(id=item.id, summary=item.summary, content=item.content)
            case WebSearchItem():
                return web_search_item(item)
        return None

    def _reasoning_part(self, event: ReasoningSummaryPart) -> None:
        opened = self._find(event.item_id)
        if opened is None:
            return
        _part(opened.summary, event.index)
        params = ReasoningSummaryPartAddedNotification(
            thread_id=self._thread.id, turn_id=self._turn.id, item_id=event.item_id, summary_index=event.index
        )
        stream = DeltaStream("item/reasoning/summaryPartAdded", lambda *, delta: params)
        self._thread.journal.append(stream, "")

    def _stream(self, opened: OpenItem, kind: str, index: int) -> DeltaStream:
        stream = opened.streams.get((kind, index))
        if stream is None:
            ids: dict[str, Any] = {"thread_id": self._thread.id, "turn_id": self._turn.id, "item_id": opened.item.id}
            if kind == "text":
                stream = DeltaStream("item/agentMessage/delta", partial(AgentMessageDeltaNotification, **ids))
            elif kind == "summary":
                params = partial(ReasoningSummaryTextDeltaNotification, summary_index=index, **ids)
                stream = DeltaStream("item/reasoning/summaryTextDelta", params)
            else:
                content = partial(ReasoningTextDeltaNotification, content_index=index, **ids)
                stream = DeltaStream("item/reasoning/textDelta", content)
            opened.streams[kind, index] = stream
        return stream


def _part(parts: list[list[str]], index: int) -> list[str]:
    while len(parts) <= index:
        parts.append([])
    return parts[index]


async def sample(
    turn: Turn, request: Callable[[], Awaitable[ModelRequest]], reading: Callable[[], Sampling]
) -> Sampling:
    """Ask until a response came to its end, as often as the provider's settings say. Raises `ModelError`."""
    attempt, retried = 0, False
    while True:
        sampling = reading()
        try:
            asked = await request()
            await sampling.run(structs.replace(asked, retried=True) if retried else asked)
            return sampling
        except ModelError as error:
            provider = turn.thread.provider
            limit = provider.stream_max_retries if provider is not None else 0
            retried = retried or was_retried(error)
            wait = pause_after(error, attempt, limit, answered=turn.answered)
            if wait is None:
                raise
            notice = TurnError(
                message=f"Reconnecting... {attempt + 1}/{limit}",
                codex_error_info=retry_info(error),
                additional_details=error.message,
            )
            turn.report.error(notice, will_retry=True)
            await asyncio.sleep(wait)
            attempt += 1


def report_wait(turn: Turn, waiting: Waiting) -> None:
    """The model is not asked yet, because its provider is at a limit; it will be."""
    notice = TurnError(
        message=f"Waiting for provider `{waiting.provider}`: {waiting.why}",
        codex_error_info="rateLimitExceeded",
        additional_details=f"{waiting.waiting} waiting",
    )
    turn.report.error(notice, will_retry=True)


def request_headers(turn: Turn) -> dict[str, str]:
    thread = turn.thread
    headers = {
        "user-agent": thread.services.user_agent,
        "originator": thread.record.originator or "treadle",
        "session-id": thread.session_id,
        "thread-id": thread.id,
    }
    if (agent := thread.state.agent) is not None:
        headers |= {"x-codex-parent-thread-id": agent.parent_id, "x-openai-subagent": "collab_spawn"}
    return headers


def web_search_item(item: WebSearchItem) -> WebSearchThreadItem:
    """The item that shows a web search, which the provider makes itself."""
    action = item.action
    query = action.query or action.url or next(iter(action.queries or ()), "")
    if action.pattern:
        query = f"'{action.pattern}' in {query}" if query else f"'{action.pattern}'"
    shown: WebSearchAction = OtherWebSearchAction()
    match action.type:
        case "search":
            shown = SearchWebSearchAction(query=action.query, queries=action.queries)
        case "open_page":
            shown = OpenPageWebSearchAction(url=action.url)
        case "find_in_page":
            shown = FindInPageWebSearchAction(url=action.url, pattern=action.pattern)
    return WebSearchThreadItem(id=item.id, query=query, action=shown)
