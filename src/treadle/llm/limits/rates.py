"""Rates: `MinuteWindow` for configured limits, `Bucket` for limits that a server reports, and `SlowStart` for a server
that only refuses.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MINUTE_S: Final = 60.0
# Spending within this time shares a slot, so that a window has at most 600 slots.
_SLOT_S: Final = 0.1
# After a refusal: how often one more concurrent request is tried.
WIDEN_AFTER_S: Final = 10.0


class Slot:
    __slots__ = ("amount", "began", "last")

    def __init__(self, now: float) -> None:
        self.began: float = now
        self.last: float = now
        self.amount: int = 0


class MinuteWindow:
    """At most `limit` in any 60 seconds. A single amount above the limit goes when nothing else was
    spent for a minute.
    """

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self._slots: deque[Slot] = deque()
        self._sum = 0

    def free_at(self, amount: int, now: float) -> float:
        """When this much may be spent; `now` or earlier if at once."""
        self._forget(now)
        over = self._sum + amount - self.limit
        if over <= 0:
            return now
        at = now
        for slot in self._slots:
            at = slot.last + MINUTE_S
            over -= slot.amount
            if over <= 0:
                break
        return at

    def spend(self, amount: int, now: float) -> Slot:
        slot = self._slots[-1] if self._slots else None
        if slot is None or now >= slot.began + _SLOT_S:
            slot = Slot(now)
            self._slots.append(slot)
        slot.last = max(slot.last, now)
        slot.amount += amount
        self._sum += amount
        return slot

    def correct(self, slot: Slot, estimated: int, amount: int, now: float) -> None:
        """The amount turned out different from the estimate. An excess over a slot that has already expired is spent
        now.
        """
        self._forget(now)
        if slot.last + MINUTE_S > now:
            slot.amount += amount - estimated
            self._sum += amount - estimated
        elif amount > estimated:
            self.spend(amount - estimated, now)

    def spent(self, now: float) -> int:
        self._forget(now)
        return self._sum

    def _forget(self, now: float) -> None:
        while self._slots and self._slots[0].last + MINUTE_S <= now:
            self._sum -= self._slots.popleft().amount


class Bucket:
    """A limit reported by the server: what is left of it, refilled evenly until it is full."""

    def __init__(self, limit: float, left: float, full_in_s: float, now: float) -> None:
        self._limit = max(limit, left, 1.0)
        self._left = left
        missing = self._limit - left
        self._per_s = missing / full_in_s if missing > 0 and full_in_s > 0 else self._limit / MINUTE_S
        self._at = now

    def free_at(self, amount: float, now: float) -> float:
        """As in `MinuteWindow`. More than the limit never becomes available, so a full bucket is enough."""
        self._fill(now)
        short = min(amount, self._limit) - self._left
        return now if short <= 0 else now + short / self._per_s

    def spend(self, amount: float, now: float) -> None:
        self._fill(now)
        self._left -= amount

    def _fill(self, now: float) -> None:
        self._left = min(self._limit, self._left + self._per_s * max(0.0, now - self._at))
        self._at = max(self._at, now)


class SlowStart:
    """How many requests run at a time on a server that has refused one: as many as it was serving, then slowly more.

    The number it was answering when it refused is taken as its capacity; if none, half of what was sent. Up to that,
    each response admits one more; beyond it, one more (or a tenth) is tried every `WIDEN_AFTER_S`.
    """

    def __init__(self, running: int, asked: int, now: float) -> None:
        self.width: int = max(1, running)
        self._enough = running or max(1, asked // 2)
        self._wider_at = now + WIDEN_AFTER_S

    def accepted(self, running: int, now: float) -> None:
        if running < self.width:
            return  # concurrency is not the bottleneck
        if self.width < self._enough:
            self.width += 1
        elif now >= self._wider_at:
            self.width += max(1, self.width // 10)
            self._wider_at = now + WIDEN_AFTER_S
