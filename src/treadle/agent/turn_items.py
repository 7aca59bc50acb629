"""`TurnItems`: the items of one turn. It owns which are open, what of them was kept and what clients are told.

An item is started, may grow by deltas, and is completed; some are over as soon as they begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from treadle.agent.ids import now_ms
from treadle.agent.open_items import OpenItem, search_text
from treadle.protocol.app.base import encode
from treadle.protocol.app.item_notifications import ItemCompletedNotification, ItemStartedNotification
from treadle.protocol.app.items import KnownItem
from treadle.store.contract import DropItem, ItemRecord, Write

if TYPE_CHECKING:
    from treadle.agent.thread import Thread
    from treadle.agent.turn_state import TurnState


class TurnItems:
    def __init__(self, thread: Thread, turn: TurnState) -> None:
        self._thread = thread
        self._turn = turn
        self._open: dict[str, OpenItem] = {}
        self._done: list[KnownItem] = []

    def start(self, item: KnownItem) -> OpenItem:
        now = now_ms()
        item = structs.replace(item, started_at_ms=now)
        opened = self._open[item.id] = OpenItem(self._thread.next_item(), item)
        self._emit_started(item, now, self._record(opened.number, item, is_open=True))
        return opened

    def complete(self, item: KnownItem, *writes: Write) -> None:
        """An item that was started; `item` is how it ended."""
        opened = self._close(item.id)
        started = opened.item.started_at_ms
        now = max(now_ms(), started or 0)  # the clock may have been set back meanwhile
        item = structs.replace(item, started_at_ms=started, completed_at_ms=now)
        self._emit_completed(opened.number, item, now, writes)

    def show(self, item: KnownItem, *writes: Write) -> None:
        """An item that is over as soon as it begins."""
        now = now_ms()
        item = structs.replace(item, started_at_ms=now)
        self._emit_started(item, now)
        self._emit_completed(self._thread.next_item(), structs.replace(item, completed_at_ms=now), now, writes)

    def drop(self, item_id: str) -> None:
        """The model began it and will never end it."""
        if item_id in self._open:
            self._thread.journal.write(DropItem(self._thread.id, self._close(item_id).number))

    def update_kept(self, number: int, item: KnownItem) -> None:
        """How an item that was left running has ended, for whoever reads the thread later; nobody is told."""
        self._thread.journal.write(self._record(number, item, is_open=False))

    def find(self, item_id: str) -> OpenItem | None:
        return self._open.get(item_id)

    def open(self) -> list[KnownItem]:
        """Those under way, as far as they have come."""
        return [opened.so_far() for opened in self._open.values()]

    def all(self) -> tuple[KnownItem, ...]:
        return (*self._done, *self.open())

    def complete_open(self) -> None:
        """The turn is over: a command that goes on in the background counts as done in it."""
        for opened in tuple(self._open.values()):
            self.complete(opened.so_far())

    def abandon_open(self) -> list[Write]:
        """The turn ended early: open items keep what they have, and are nobody's news any more."""
        writes: list[Write] = [
            self._record(opened.number, opened.so_far(), is_open=True) for opened in self._open.values()
        ]
        for item_id in tuple(self._open):
            self._close(item_id)
        return writes

    def _close(self, item_id: str) -> OpenItem:
        opened = self._open.pop(item_id)
        opened.close()
        return opened

    def _emit_started(self, item: KnownItem, now: int, *writes: Write) -> None:
        params = ItemStartedNotification(thread_id=self._thread.id, turn_id=self._turn.id, item=item, started_at_ms=now)
        self._thread.journal.emit("item/started", params, *writes)

    def _emit_completed(self, number: int, item: KnownItem, now: int, writes: Iterable[Write]) -> None:
        params = ItemCompletedNotification(
            thread_id=self._thread.id, turn_id=self._turn.id, item=item, completed_at_ms=now
        )
        self._done.append(item)
        self._thread.journal.emit("item/completed", params, self._record(number, item, is_open=False), *writes)

    def _record(self, number: int, item: KnownItem, *, is_open: bool) -> ItemRecord:
        return ItemRecord(
            thread_id=self._thread.id,
            number=number,
            turn=self._turn.number,
            id=item.id,
            type=item.type,
            data=encode(item),
            text=None if is_open else search_text(item),
            open=is_open,
            started_at_ms=item.started_at_ms,
            completed_at_ms=item.completed_at_ms,
        )
