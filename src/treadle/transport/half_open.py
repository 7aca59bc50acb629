"""`HalfOpen`: connections that have not completed the handshake: how many there may be, and which is evicted for a new
one.

Pure bookkeeping: no I/O, and the time is an argument. A new connection is never refused here: at the limit, the oldest
one of the peer that has the most is dropped. A peer that opens connections and stays silent evicts its own, and a
client that speaks at once is through long before it could be the oldest.

A program that opens hundreds at once speaks on none of them for a moment. So at the limit, the next connection is not
accepted until the oldest has had some time, as long as that helps: each connection that had its time and still said
nothing halves the time for the others, so under attack there is soon no delay at all.
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
PATIENCE_S = 1.0
# So many clients that spoke restore it, and so does this time without one that did not.
GOOD_FOR_ALL = 8
FORGET_S = 5.0


class HalfOpen(Generic[Item]):
    def __init__(self, total: int = MAX_HALF_OPEN, per_peer: int = MAX_PER_PEER) -> None:
        self._total = total
        self._per_peer = per_peer
        self._peers: dict[Hashable, dict[Item, float]] = {}
        self._size = 0
        self._patience_s = PATIENCE_S
        self._annoyed_at = 0.0

    def __len__(self) -> int:
        return self._size

    def wait_s(self, now: float) -> float:
        """How long to leave newcomers where they are, for the sake of those who are here."""
        if now - self._annoyed_at > FORGET_S:
            self._patience_s = PATIENCE_S
        return max(0.0, self._oldest_since() + self._patience_s - now) if self._is_full() else 0.0

    def add(self, peer: Hashable, item: Item, now: float) -> Item | None:
        """Count a newcomer in; the one that has to go for it."""
        waiting = self._peers.setdefault(peer, {})
        waiting[item] = now
        self._size += 1
        if len(waiting) > self._per_peer:
            self._lose_patience(now)
            return self._take(peer)
        if self._size > self._total:
            self._lose_patience(now)
            return self._take(self._greediest())
        return None

    def passed(self, peer: Hashable, item: Item) -> None:
        """It has shown who it is."""
        if self._drop(peer, item):
            self._patience_s = min(PATIENCE_S, self._patience_s + PATIENCE_S / GOOD_FOR_ALL)

    def left(self, peer: Hashable, item: Item, now: float) -> None:
        """It has gone without that. May be called again."""
        was_full = self._is_full()
        if self._drop(peer, item) and was_full:
            self._lose_patience(now)

    def take_slow(self, now: float) -> Item | None:
        """The one that is next to go, if it has had its time."""
        return self.take_oldest() if self._peers and self._oldest_since() + self._patience_s <= now else None

    def take_oldest(self) -> Item | None:
        return self._take(self._greediest()) if self._peers else None

    def _is_full(self) -> bool:
        return bool(self._peers) and (
            self._size >= self._total or len(self._peers[self._greediest()]) >= self._per_peer
        )

    def _oldest_since(self) -> float:
        return next(iter(self._peers[self._greediest()].values()))

    def _greediest(self) -> Hashable:
        return max(self._peers, key=lambda peer: len(self._peers[peer]))

    def _take(self, peer: Hashable) -> Item:
        oldest = next(iter(self._peers[peer]))
        self._drop(peer, oldest)
        return oldest

    def _lose_patience(self, now: float) -> None:
        self._patience_s /= 2
        self._annoyed_at = now

    def _drop(self, peer: Hashable, item: Item) -> bool:
        waiting = self._peers.get(peer, {})
        if waiting.pop(item, None) is None:
            return False
        self._size -= 1
        if not waiting:
            del self._peers[peer]
        return True
