"""`TurnEvents`: the events of a turn in this process, until the session reads them. Bounded, and lossless.

Adjacent deltas of the same item are joined. If there are still too many, the producer waits: a model that is faster
than its reader is read more slowly.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from treadle.host.faults import Fault, RuntimeFault
from treadle.host.runtime import Delta, RuntimeEvent

MAX_EVENTS: Final = 1024
MAX_DELTA: Final = 64 << 10
"""Characters of one piece: what is said meanwhile is not one endless text."""


class TurnEvents:
    """The events of the turn that was started last. For one event loop; one reads, and the turn writes."""

    def __init__(self) -> None:
        self._events: deque[RuntimeEvent] = deque()
        self._there = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed: Fault | None = None

    def begin(self) -> None:
        """A turn begins: what was not read of the one before is not wanted any more."""
        self._events.clear()
        self._there.clear()
        self._room.set()

    async def tell(self, event: RuntimeEvent) -> None:
        """Add an event, as soon as there is room for it."""
        last = self._events[-1] if self._events else None
        if isinstance(event, Delta) and isinstance(last, Delta) and _joins(last, event):
            self._events[-1] = Delta(last.item_id, last.text + event.text, last.kind)
            return
        await self._room.wait()
        self._add(event)

    def note(self, event: RuntimeEvent) -> None:
        """Add an event that cannot wait: of a callback, or one that ends something. There are few of them."""
        self._add(event)

    def _add(self, event: RuntimeEvent) -> None:
        self._events.append(event)
        self._there.set()
        if len(self._events) >= MAX_EVENTS:
            self._room.clear()

    async def next(self) -> RuntimeEvent:
        """The next event. Raises `RuntimeFault` when there will be none any more."""
        while not self._events:
            if self._closed is not None:
                raise RuntimeFault(self._closed)
            self._there.clear()
            await self._there.wait()
        event = self._events.popleft()
        if len(self._events) < MAX_EVENTS:
            self._room.set()
        return event

    def close(self, fault: Fault) -> None:
        """Whoever waits for an event gets this instead."""
        self._events.clear()
        self._closed = fault
        self._there.set()
        self._room.set()


def _joins(last: Delta, more: Delta) -> bool:
    same = last.item_id == more.item_id and last.kind == more.kind
    return same and len(last.text) + len(more.text) <= MAX_DELTA
