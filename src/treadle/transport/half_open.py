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
            return self._take_oldest(peer)
        return self.take_oldest() if self._size > self._total else None

    def remove(self, peer: Hashable, item: Item) -> None:
        """It has shown who it is, or is gone. May be called again."""
        waiting = self._peers.get(peer)
        if waiting is None or item not in waiting:
            return
        del waiting[item]
        self._size -= 1
        if not waiting:
            del self._peers[peer]

    def take_oldest(self) -> Item | None:
        """Remove the oldest of the peer that has the most."""
        if not self._peers:
            return None
        return self._take_oldest(max(self._peers, key=lambda peer: len(self._peers[peer])))

    def _take_oldest(self, peer: Hashable) -> Item:
        oldest = next(iter(self._peers[peer]))
        self.remove(peer, oldest)
        return oldest
