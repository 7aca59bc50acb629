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

# In total: at most a quarter of the usual 1,024 descriptors. Per peer: several times what is accepted in one iteration
# of the event loop, so that a client's first bytes are read before that many others have come after it.
MAX_HALF_OPEN = 256
MAX_PER_PEER = 128
GRACE_S = 1.0
# The grace period is restored by this many clients that complete the handshake, or by this time without a silent one.
RESTORING_CLIENTS = 8
FORGET_S = 5.0


class HalfOpen(Generic[Item]):
    def __init__(self, total: int = MAX_HALF_OPEN, per_peer: int = MAX_PER_PEER) -> None:
        self._total = total
        self._per_peer = per_peer
        self._peers: dict[Hashable, dict[Item, float]] = {}
        self._size = 0
        self._grace_s = GRACE_S
        self._shortened_at = 0.0

    def __len__(self) -> int:
        return self._size

    def wait_s(self, now: float) -> float:
        """How long to delay new connections for the sake of the ones already here."""
        if now - self._shortened_at > FORGET_S:
            self._grace_s = GRACE_S
        return max(0.0, self._oldest_since() + self._grace_s - now) if self._is_full() else 0.0

    def add(self, peer: Hashable, item: Item, now: float) -> Item | None:
        """Count a new connection; returns the one to evict for it, if any."""
        waiting = self._peers.setdefault(peer, {})
        waiting[item] = now
        self._size += 1
        if len(waiting) > self._per_peer:
            self._shorten_grace(now)
            return self._take(peer)
        if self._size > self._total:
            self._shorten_grace(now)
            return self._take(self._busiest_peer())
        return None

    def passed(self, peer: Hashable, item: Item) -> None:
        """It has completed the handshake."""
        if self._drop(peer, item):
            self._grace_s = min(GRACE_S, self._grace_s + GRACE_S / RESTORING_CLIENTS)

    def left(self, peer: Hashable, item: Item, now: float) -> None:
        """It is gone without completing the handshake. Idempotent."""
        was_full = self._is_full()
        if self._drop(peer, item) and was_full:
            self._shorten_grace(now)

    def evict_slow(self, now: float) -> Item | None:
        """The next one to evict, if its grace period is over."""
        return self.evict_oldest() if self._peers and self._oldest_since() + self._grace_s <= now else None

    def evict_oldest(self) -> Item | None:
        return self._take(self._busiest_peer()) if self._peers else None

    def _is_full(self) -> bool:
        return bool(self._peers) and (
            self._size >= self._total or len(self._peers[self._busiest_peer()]) >= self._per_peer
        )

    def _oldest_since(self) -> float:
        return next(iter(self._peers[self._busiest_peer()].values()))

    def _busiest_peer(self) -> Hashable:
        return max(self._peers, key=lambda peer: len(self._peers[peer]))

    def _take(self, peer: Hashable) -> Item:
        oldest = next(iter(self._peers[peer]))
        self._drop(peer, oldest)
        return oldest

    def _shorten_grace(self, now: float) -> None:
        self._grace_s /= 2
        self._shortened_at = now

    def _drop(self, peer: Hashable, item: Item) -> bool:
        waiting = self._peers.get(peer, {})
        if waiting.pop(item, None) is None:
            return False
        self._size -= 1
        if not waiting:
            del self._peers[peer]
        return True
