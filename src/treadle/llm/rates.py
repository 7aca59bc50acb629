"""The parts of the rate limiter, sans I/O: `FairQueue` says which request is next; `MinuteWindow` counts for configured
limits, `Bucket` for limits that a server reports, and `SlowStart` for a server that only refuses; `read_limits` reads
the limits in the headers of a response.

`FairQueue` is start-time fair queueing with requests of equal size: the requests of a thread get consecutive rounds, a
new thread starts in the round being served, and the earliest round goes first. So a thread with fifty requests has one
in each round, and a waiting request is overtaken at most once per round by each other thread.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, TypeAlias

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
        # Also those that were cancelled, until they come to the front.
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
        """The time from which there is enough, as in `MinuteWindow`. More than the limit never becomes available, so
        a full bucket is enough."""
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


Unit: TypeAlias = Literal["requests", "tokens", "output tokens"]

# Header with the remaining amount: header with the limit, header with the reset time, unit.
_HEADERS: Final[dict[str, tuple[str, str, Unit]]] = {
    "x-ratelimit-remaining-requests": ("x-ratelimit-limit-requests", "x-ratelimit-reset-requests", "requests"),
    "x-ratelimit-remaining-tokens": ("x-ratelimit-limit-tokens", "x-ratelimit-reset-tokens", "tokens"),
    "anthropic-ratelimit-requests-remaining": (
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-reset",
        "requests",
    ),
    "anthropic-ratelimit-tokens-remaining": (
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-reset",
        "tokens",
    ),
    "anthropic-ratelimit-input-tokens-remaining": (
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-reset",
        "tokens",
    ),
    "anthropic-ratelimit-output-tokens-remaining": (
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-reset",
        "output tokens",
    ),
}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?")


class ReportedLimit(Struct, frozen=True):
    """`name` is the header; `full_in_s` is the time until the limit is fully reset, 0 if the server does not say."""

    name: str
    unit: Unit
    limit: float
    left: float
    full_in_s: float


LIMIT_HEADERS: Final = frozenset(_HEADERS)


def read_limits(headers: Mapping[str, str], wall: float) -> list[ReportedLimit]:
    """Header names are lower case. `wall` is the Unix time, used if the server sends no `Date`."""
    return [
        ReportedLimit(
            name, unit, _number(headers.get(limit, "")) or left, left, _full_in(headers.get(reset, ""), headers, wall)
        )
        for name, (limit, reset, unit) in _HEADERS.items()
        if name in headers and (left := _number(headers[name])) is not None
    ]


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _full_in(text: str, headers: Mapping[str, str], wall: float) -> float:
    """Parses `6m0s`, `20ms`, seconds, or an RFC 3339 date, which is compared with the server's own clock."""
    text = text.strip()
    seconds = _number(text)
    if seconds is not None:
        return seconds
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - _clock(headers.get("date", ""), wall))
    except (ValueError, OverflowError, OSError):
        return 0.0


def _clock(date: str, wall: float) -> float:
    if not date:
        return wall
    from email.utils import parsedate_to_datetime  # only for servers that send dates

    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return wall
