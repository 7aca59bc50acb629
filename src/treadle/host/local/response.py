"""`LocalResponse`: one response of a model as it arrives. It only takes effect once it is complete.

So a response that breaks off can be requested again: nothing of it was done, and nothing is announced twice.
"""

from __future__ import annotations

from msgspec import Raw, structs

from treadle.host.local.tool_calls import Call
from treadle.host.runtime import Delta, ItemCompleted, ItemStarted
from treadle.host.turn_events import TurnEvents
from treadle.llm import (
    Completed,
    CustomToolCallItem,
    FunctionCallItem,
    ItemDone,
    MessageItem,
    ModelEvent,
    OutputItem,
    ReasoningDelta,
    ReasoningItem,
    ReasoningSummaryDelta,
    TextDelta,
    TokenUsage,
)
from treadle.llm import ItemStarted as ModelItemStarted
from treadle.protocol.app.items import AgentMessageThreadItem, ReasoningThreadItem


class LocalResponse:
    """What a model said.

    Args:
        events: Where it is told while it comes; None for one that nobody should see.
    """

    def __init__(self, events: TurnEvents | None = None) -> None:
        self._events = events
        self._open: set[str] = set()
        self.items: list[OutputItem] = []
        self.usage: TokenUsage | None = None
        self.paused: bool = False

    def anew(self) -> LocalResponse:
        """For the same request, sent again."""
        return LocalResponse(self._events)

    @property
    def calls(self) -> list[Call]:
        """What it calls for."""
        return [item for item in self.items if isinstance(item, FunctionCallItem | CustomToolCallItem)]

    @property
    def text(self) -> str:
        """The last message."""
        return next((item.text for item in reversed(self.items) if isinstance(item, MessageItem)), "")

    @property
    def raw(self) -> list[Raw]:
        """For the history."""
        return [item.raw for item in self.items]

    async def receive(self, event: ModelEvent) -> None:
        """Take an event of the model, and tell of it."""
        match event:
            case ModelItemStarted():
                shown = _shown(event.item)
                if shown is not None and self._events is not None:
                    self._open.add(event.item.id)
                    await self._events.tell(ItemStarted(shown))
            case TextDelta():
                await self._tell(Delta(event.item_id, event.delta))
            case ReasoningSummaryDelta() | ReasoningDelta():
                await self._tell(Delta(event.item_id, event.delta, "reasoning"))
            case ItemDone():
                self.items.append(event.item)
            case Completed():
                self.usage, self.paused = event.usage, event.paused
            case _:
                pass

    async def _tell(self, delta: Delta) -> None:
        if self._events is not None and delta.item_id in self._open:
            await self._events.tell(delta)

    def completed(self) -> list[ItemCompleted]:
        """What there is to see of it, now that it is whole. Of its messages the last is the answer, unless it calls."""
        shown = [item for item in map(_shown, self.items) if item is not None]
        messages = [item for item in shown if isinstance(item, AgentMessageThreadItem)]
        answer = messages[-1] if messages and not self.calls and not self.paused else None
        return [ItemCompleted(_with_phase(item, is_answer=item is answer)) for item in shown]


def _with_phase(
    item: AgentMessageThreadItem | ReasoningThreadItem, *, is_answer: bool
) -> AgentMessageThreadItem | ReasoningThreadItem:
    if isinstance(item, ReasoningThreadItem) or item.phase is not None:
        return item
    return structs.replace(item, phase="final_answer" if is_answer else "commentary")


def _shown(item: OutputItem) -> AgentMessageThreadItem | ReasoningThreadItem | None:
    match item:
        case MessageItem():
            return AgentMessageThreadItem(id=item.id, text=item.text, phase=item.phase)
        case ReasoningItem():
            return ReasoningThreadItem(id=item.id, summary=item.summary, content=item.content)
    return None
