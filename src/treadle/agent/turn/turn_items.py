"""`TurnItems`: the items of one turn. It owns which are open, what of them is stored and what clients are sent.

An item is started, may grow by deltas, and is completed; some are over as soon as they begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from treadle.agent.event import DeltaStream, now_ms
from treadle.agent.turn.pending_input import text_of
from treadle.protocol.app.base import encode
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    KnownItem,
    PlanThreadItem,
    ReasoningThreadItem,
    UserMessageThreadItem,
)
from treadle.protocol.app.notifications import ItemCompletedNotification, ItemStartedNotification
from treadle.store.contract import DropItem, ItemRecord, Write

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread


SoFar: TypeAlias = Callable[[KnownItem], KnownItem]
OpenItems: TypeAlias = "Mapping[tuple[int, str], OpenItem]"
"""By the number of their turn and their id: one such as a model gives need not be the only one of its thread."""


class OpenItem:
    """`item` is as it was when its start was published; `texts` are the deltas since, for a message. `look` gives the
    rest its own way."""

    __slots__ = ("content", "in_background", "item", "look", "number", "streams", "summary", "texts")

    def __init__(self, number: int, item: KnownItem) -> None:
        self.number: int = number
        self.item: KnownItem = item
        self.texts: list[str] = []
        self.summary: list[list[str]] = []
        self.content: list[list[str]] = []
        self.streams: dict[tuple[str, int], DeltaStream] = {}
        self.look: SoFar | None = None
        self.in_background: bool = False  # it may outlive its turn

    def close(self) -> None:
        """Drop `look` and the streams: they hold whoever made the item, who holds it, and such a circle, with all the
        output in it, would wait for the garbage collector, which counts objects and not bytes."""
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


def given_up(item: KnownItem) -> KnownItem:
    """How an item ended that nobody will ever end."""
    return structs.replace(item, status="failed") if getattr(item, "status", None) == "inProgress" else item


def search_text(item: KnownItem) -> str | None:
    """What full-text search finds an item by."""
    if isinstance(item, AgentMessageThreadItem | PlanThreadItem):
        return item.text or None
    if isinstance(item, UserMessageThreadItem):
        return text_of(item.content) or None
    return None


class TurnItems:
    def __init__(self, thread: Thread, turn_id: str, number: int) -> None:
        self._thread = thread
        self._turn_id = turn_id
        self.turn: int = number
        self._open: dict[str, OpenItem] = {}
        self._done: list[KnownItem] = []
        self.last_message: AgentMessageThreadItem | None = None  # of those that are over, the one begun last
        self._last_number = 0

    def start(self, item: KnownItem) -> OpenItem:
        now = now_ms()
        item = structs.replace(item, started_at_ms=now)
        opened = self._open[item.id] = OpenItem(self._thread.next_item(), item)
        self._emit_started(item, now, self._record(opened.number, item, is_open=True))
        return opened

    def reopen(self, number: int, item: KnownItem) -> OpenItem:
        """An item whose start another server has published, and whose end it could not."""
        opened = self._open[item.id] = OpenItem(number, item)
        return opened

    def complete(self, item: KnownItem, *writes: Write) -> None:
        """An item that was started; `item` is how it ended."""
        opened = self._close(item.id)
        started = opened.item.started_at_ms
        now = max(now_ms(), started or 0)  # the clock may have been set back meanwhile
        item = opened.item = structs.replace(item, started_at_ms=started, completed_at_ms=now)
        self._emit_completed(opened.number, item, now, writes)

    def show(self, item: KnownItem, *writes: Write) -> None:
        """An item that is over as soon as it begins."""
        now = now_ms()
        item = structs.replace(item, started_at_ms=now)
        self._emit_started(item, now)
        self._emit_completed(self._thread.next_item(), structs.replace(item, completed_at_ms=now), now, writes)

    def drop(self, item_id: str) -> None:
        """The model began the item and will never end it."""
        if item_id in self._open:
            self._thread.journal.write(DropItem(self._thread.id, self._close(item_id).number))

    def forget(self, item_id: str) -> None:
        """The item is no longer stored, and its end will not be published."""
        if item_id in self._open:
            self._close(item_id)

    def find(self, item_id: str) -> OpenItem | None:
        return self._open.get(item_id)

    def open(self) -> list[KnownItem]:
        """The items under way, as far as they have come."""
        return [opened.so_far() for opened in self._open.values()]

    def all(self) -> tuple[KnownItem, ...]:
        return (*self._done, *self.open())

    def end_open(self, *, early: bool) -> list[Write]:
        """The turn is over. A command in the background stays open until it ends. What else can be seen to run is
        completed; a message that was cut off by an early end is stored with what it has, and not published any more."""
        writes: list[Write] = []
        for opened in tuple(self._open.values()):
            item = opened.so_far()
            if not opened.in_background and (not early or hasattr(item, "status")):
                self.complete(given_up(item))
                continue
            writes.append(self._record(opened.number, item, is_open=True))
            if not opened.in_background:
                self._close(item.id)
        return writes

    def _close(self, item_id: str) -> OpenItem:
        opened = self._open.pop(item_id)
        opened.close()
        return opened

    def _emit_started(self, item: KnownItem, now: int, *writes: Write) -> None:
        params = ItemStartedNotification(thread_id=self._thread.id, turn_id=self._turn_id, item=item, started_at_ms=now)
        self._thread.journal.emit("item/started", params, *writes)

    def _emit_completed(self, number: int, item: KnownItem, now: int, writes: Iterable[Write]) -> None:
        params = ItemCompletedNotification(
            thread_id=self._thread.id, turn_id=self._turn_id, item=item, completed_at_ms=now
        )
        self._done.append(item)
        if isinstance(item, AgentMessageThreadItem) and number > self._last_number:
            self._last_number, self.last_message = number, item
        self._thread.journal.emit("item/completed", params, self._record(number, item, is_open=False), *writes)

    def _record(self, number: int, item: KnownItem, *, is_open: bool) -> ItemRecord:
        return ItemRecord(
            thread_id=self._thread.id,
            number=number,
            turn=self.turn,
            id=item.id,
            type=str(item.__struct_config__.tag),
            data=encode(item),
            text=None if is_open else search_text(item),
            open=is_open,
            started_at_ms=item.started_at_ms,
            completed_at_ms=item.completed_at_ms,
        )
