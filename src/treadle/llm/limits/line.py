"""`FairLine`: who is next when many wait. Threads take turns, however many requests each of them has.

Start-time fair queueing with requests of equal size: each thread's requests get rounds that follow one another, a
thread that comes new begins in the round that is being served, and the earliest round goes first. So a thread with
fifty requests has one in each round, and who waits is overtaken at most once by each of the others per round.
"""

from __future__ import annotations

import heapq
from typing import Final

# Below it, what is left of requests that were given up, or of threads that are gone, is not worth a look.
_LITTER: Final = 256


class Place:
    """One request, from when it joins until its response is over."""

    __slots__ = ("answered", "key", "number", "round", "sent", "slot", "tokens", "waits")

    def __init__(self, key: str, tokens: int) -> None:
        self.key: str = key
        self.tokens: int = tokens  # estimated
        self.number: int = 0  # the order of joining; 0 was never in the line
        self.round: int = 0
        self.waits: bool = False
        self.sent: int = 0  # the order of leaving; 0 is not yet
        self.answered: bool = False
        self.slot: object = None  # where its tokens are counted


class FairLine:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Place]] = []  # also those that were given up, until they come to the front
        self._next_rounds: dict[str, int] = {}
        self._round = 0
        self._numbers = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, place: Place) -> None:
        self._numbers += 1
        place.number = self._numbers
        place.round = max(self._round, self._next_rounds.get(place.key, 0))
        self._next_rounds[place.key] = place.round + 1
        self.put_back(place)

    def put_back(self, place: Place) -> None:
        """One that had left goes where it was: before whoever came later."""
        place.waits = True
        self._waiting += 1
        heapq.heappush(self._heap, (place.round, place.number, place))

    def first(self) -> Place | None:
        while self._heap and not self._heap[0][2].waits:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def take(self) -> Place:
        """The first leaves the line."""
        place = self.first()
        assert place is not None
        heapq.heappop(self._heap)
        place.waits = False
        self._waiting -= 1
        self._round = max(self._round, place.round)
        self._tidy()
        return place

    def remove(self, place: Place) -> None:
        """It waits no longer, and its thread's next request may have its round."""
        place.waits = False
        self._waiting -= 1
        if self._next_rounds.get(place.key) == place.round + 1:
            self._next_rounds[place.key] = place.round
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * self._waiting + _LITTER:
            self._heap = [entry for entry in self._heap if entry[2].waits]
            heapq.heapify(self._heap)
        if not self._waiting:
            self._next_rounds.clear()
        elif len(self._next_rounds) > 2 * self._waiting + _LITTER:
            self._next_rounds = {key: at for key, at in self._next_rounds.items() if at > self._round}
