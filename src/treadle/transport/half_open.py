"""Connections that have not shown yet who they are: how many there may be, and which one makes room for a newcomer.

Pure bookkeeping, without I/O and without a clock. Nobody is refused here: at a limit the oldest connection goes, of the
peer that has the most. Whoever opens connections and says nothing pushes out its own, and a client that speaks at once
is through long before it could be the oldest.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

# All of them, so that they never hold more than a quarter of the usual 1,024 descriptors, and those of one peer. The
# latter is several times what is accepted in one step of the event loop: a client's first bytes are read before as many
# have come after it.
MAX_HALF_OPEN = 256
MAX_PER_PEER = 128


class HalfOpen(Generic[Item]):
    def __init__(self, total: int = MAX_HALF_OPEN, per_peer: int = MAX_PER_PEER) -> None:
        self._total = total
        self._per_peer = per_peer
        self._peers: dict[Hashable, dict[Item, None]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, peer: Hashable, item: Item) -> Item | None:
        """Count a newcomer in; the one that has to go for it."""
        waiting = self._peers.setdefault(peer, {})
        waiting[item] = None
        self._size += 1
        if len(waiting) > self._per_peer:
            return self._take(peer)
        return self._take(self._greediest()) if self._size > self._total else None

    def remove(self, peer: Hashable, item: Item) -> None:
        """It has shown who it is, or is gone. May be called again."""
        waiting = self._peers.get(peer)
        if waiting is None or item not in waiting:
            return
        del waiting[item]
        self._size -= 1
        if not waiting:
            del self._peers[peer]

    def oldest(self) -> Item | None:
        """Of the peer that has the most: who would be the next to go."""
        return next(iter(self._peers[self._greediest()])) if self._peers else None

    def take_oldest(self) -> Item | None:
        return self._take(self._greediest()) if self._peers else None

    def _greediest(self) -> Hashable:
        return max(self._peers, key=lambda peer: len(self._peers[peer]))

    def _take(self, peer: Hashable) -> Item:
        oldest = next(iter(self._peers[peer]))
        self.remove(peer, oldest)
        return oldest
