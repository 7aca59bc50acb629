"""`FairQueue`: which request is next. Threads take turns, however many requests each of them has waiting.

Start-time fair queueing with requests of equal size: the requests of a thread get consecutive rounds, a new thread
starts in the round being served, and the earliest round goes first. So a thread with fifty requests has one in each
round, and a waiting request is overtaken at most once per round by each other thread.
"""

from __future__ import annotations

import heapq
from typing import Final

from msgspec import Struct

# Leftovers of cancelled requests and finished threads are cleaned up once there are more than this.
_LITTER: Final = 256


class QueueEntry(Struct, eq=False):
    """One request, from when it joins until its response is over.

    `tokens` are estimated; `number` is its place in the order of joining (0: never queued), `sent` in that of sending
    (0: not sent yet); `slot` is the window slot that its tokens are counted in.
    """

    key: str
    tokens: int
    number: int = 0
    round: int = 0
    waits: bool = False
    sent: int = 0
    answered: bool = False
    slot: object = None


class FairQueue:
    def __init__(self) -> None:
        # Also those that were given up, until they come to the front.
        self._heap: list[tuple[int, int, QueueEntry]] = []
        self._next_rounds: dict[str, int] = {}
        self._round = 0
        self._numbers = 0
        self.waiting: int = 0

    def add(self, entry: QueueEntry) -> None:
        self._numbers += 1
        entry.number = self._numbers
        entry.round = max(self._round, self._next_rounds.get(entry.key, 0))
        self._next_rounds[entry.key] = entry.round + 1
        self.put_back(entry)

    def put_back(self, entry: QueueEntry) -> None:
        """A request that had left goes back to its old place, ahead of those that came later."""
        entry.waits = True
        self.waiting += 1
        heapq.heappush(self._heap, (entry.round, entry.number, entry))

    def first(self) -> QueueEntry | None:
        while self._heap and not self._heap[0][2].waits:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def take(self) -> QueueEntry:
        """Remove the first request."""
        entry = self.first()
        assert entry is not None
        heapq.heappop(self._heap)
        entry.waits = False
        self.waiting -= 1
        self._round = max(self._round, entry.round)
        self._tidy()
        return entry

    def remove(self, entry: QueueEntry) -> None:
        """Cancel a waiting request; its round goes to its thread's next one."""
        entry.waits = False
        self.waiting -= 1
        if self._next_rounds.get(entry.key) == entry.round + 1:
            self._next_rounds[entry.key] = entry.round
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * self.waiting + _LITTER:
            self._heap = [entry for entry in self._heap if entry[2].waits]
            heapq.heapify(self._heap)
        if not self.waiting:
            self._next_rounds.clear()
        elif len(self._next_rounds) > 2 * self.waiting + _LITTER:
            self._next_rounds = {key: at for key, at in self._next_rounds.items() if at > self._round}
