"""Items under way: what has come of them so far, so that whoever joins in the middle misses nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import structs

from treadle.agent.event import DeltaStream
from treadle.agent.user_input import text_of
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    KnownItem,
    ReasoningThreadItem,
    UserMessageThreadItem,
)

SoFar: TypeAlias = Callable[[KnownItem], KnownItem]


class OpenItem:
    """`item` is what was announced; `texts` are the deltas since, for a message. `look` gives the rest its own way."""

    __slots__ = ("content", "item", "look", "number", "streams", "summary", "texts")

    def __init__(self, number: int, item: KnownItem) -> None:
        self.number: int = number
        self.item: KnownItem = item
        self.texts: list[str] = []
        self.summary: list[list[str]] = []
        self.content: list[list[str]] = []
        self.streams: dict[tuple[str, int], DeltaStream] = {}
        self.look: SoFar | None = None

    def close(self) -> None:
        """It is over. Both hold whoever made the item, who holds it: such a circle, with all the output in it, would
        wait for the garbage collector, which counts objects and not bytes."""
        self.look = None
        self.streams.clear()

    def so_far(self) -> KnownItem:
        if self.look is not None:
            return self.look(self.item)
        if isinstance(self.item, AgentMessageThreadItem):
            return structs.replace(self.item, text=self.item.text + "".join(self.texts))
        if isinstance(self.item, ReasoningThreadItem):
            return structs.replace(
                self.item,
                summary=tuple("".join(part) for part in self.summary) or self.item.summary,
                content=tuple("".join(part) for part in self.content) or self.item.content,
            )
        return self.item


def search_text(item: KnownItem) -> str | None:
    """What full-text search finds an item by."""
    if isinstance(item, AgentMessageThreadItem):
        return item.text or None
    if isinstance(item, UserMessageThreadItem):
        return text_of(item.content) or None
    return None
