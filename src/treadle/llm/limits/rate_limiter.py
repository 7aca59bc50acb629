"""`RateLimiter`: which request may be sent to a provider now, and when the next one may. Sans I/O: the time is an
argument.

It always honours the configured limits, and the limits that the server reports if they reset within seconds. A refusal
(HTTP 429, or 503 and 529 with a time to wait) stops all requests; afterwards they resume with a slow start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from treadle.llm.limits.fair_queue import FairQueue, QueueEntry
from treadle.llm.limits.rates import MINUTE_S, Bucket, MinuteWindow, Slot, SlowStart
from treadle.llm.limits.reported_limits import ReportedLimit

# Beyond this, requests fail: a caller that makes so many at once should know.
MAX_WAITING: Final = 4096
# If a reported limit resets later than this, the request is sent anyway: the server's refusal then says how long to
# wait, and the user sees it.
MAX_REPORTED_WAIT_S: Final = 120.0
# Weight of a new observation in the moving averages.
_NEW: Final = 0.2


class QueueFull(Exception):
    """`MAX_WAITING` requests are already waiting."""


class Limits(Struct, frozen=True):
    """The configured limits; None means unlimited."""

    at_a_time: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class WaitReason(Struct, frozen=True):
    """Why the first request in the queue waits, and until when at the latest; None means until another request ends."""

    why: str
    until: float | None = None


class LimiterStats(Struct, frozen=True, kw_only=True):
    """`at_a_time` is how many requests may run now (None: unlimited); `refusals` counts those since
    the last response.
    """

    running: int
    waiting: int
    at_a_time: int | None
    refusals: int


class RateLimiter:
    """Call `join`, or `enter_now` if it `is_open`; `advance` after every change; and `leave` for every entry in the
    end.
    """

    def __init__(self, limits: Limits) -> None:
        self._at_a_time = limits.at_a_time
        self._requests = _minute(limits.requests_per_minute)
        self._tokens = _minute(limits.tokens_per_minute)
        self._limited = limits != Limits()
        self._reported: dict[str, tuple[ReportedLimit, Bucket]] = {}
        self._share = 1.0  # moving average: tokens that servers count per estimated token
        self._written = 1.0  # moving average: output tokens per response
        self._queue = FairQueue()
        self._running: dict[QueueEntry, None] = {}  # in the order of sending
        self._sent = 0
        self._slow_start: SlowStart | None = None
        self._closed_until = 0.0
        self._forget_at = 0.0  # when a refusal no longer matters
        self._sent_when_refused = 0
        self._refused_by = 429
        self.refusals: int = 0

    @property
    def is_open(self) -> bool:
        """Whether there is no limit at all, configured or reported, and no queue."""
        return not (self._limited or self._reported or self._slow_start is not None or self._queue.waiting)

    def stats(self) -> LimiterStats:
        return LimiterStats(
            running=len(self._running), waiting=self._queue.waiting, at_a_time=self._width(), refusals=self.refusals
        )

    # --- entering and leaving ---

    def enter_now(self, key: str, tokens: int, now: float) -> QueueEntry:
        entry = QueueEntry(key, tokens)
        self._start(entry, now)
        return entry

    def join(self, key: str, tokens: int) -> QueueEntry:
        if self._queue.waiting >= MAX_WAITING:
            raise QueueFull
        entry = QueueEntry(key, tokens)
        self._queue.add(entry)
        return entry

    def advance(self, now: float) -> list[QueueEntry]:
        """The requests that may be sent now, in order."""
        leaving: list[QueueEntry] = []
        while self._queue.waiting and self.wait_reason(now) is None:
            entry = self._queue.take()
            self._start(entry, now)
            leaving.append(entry)
        return leaving

    def leave(self, entry: QueueEntry, now: float) -> None:
        """The response is over, or the request was given up, waiting or not. Idempotent."""
        if entry.waits:
            self._queue.remove(entry)
        self._running.pop(entry, None)
        if self._slow_start is not None and not self._running and not self._queue.waiting and now > self._forget_at:
            self._slow_start = None

    def _start(self, entry: QueueEntry, now: float) -> None:
        self._sent += 1
        entry.sent = self._sent
        entry.answered = False
        self._running[entry] = None
        if self._requests is not None:
            self._requests.spend(1, now)
        if self._tokens is not None:
            entry.slot = self._tokens.spend(entry.tokens, now)
        for reported, bucket in self._reported.values():
            bucket.spend(self._cost(reported, entry), now)

    # --- who must wait ---

    def wait_reason(self, now: float) -> WaitReason | None:
        """Why the first request waits; None if it may go, or if there is none."""
        entry = self._queue.first()
        return None if entry is None else self._wait_reason_for(entry, now)

    def _wait_reason_for(self, entry: QueueEntry, now: float) -> WaitReason | None:
        if now < self._closed_until:
            until, by = self._closed_until, f"HTTP {self._refused_by}"
            return WaitReason(f"the server has refused a request ({by}); free in {until - now:.1f} s", until)
        width = self._width()
        if width is not None and len(self._running) >= width:
            return self._too_many(width)
        return self._too_fast(entry, now) or self._over_reported_limit(entry, now)

    def _width(self) -> int | None:
        if self._slow_start is None:
            return self._at_a_time
        return self._slow_start.width if self._at_a_time is None else min(self._slow_start.width, self._at_a_time)

    def _too_many(self, width: int) -> WaitReason:
        if width == self._at_a_time:
            return WaitReason(f"{len(self._running)} of its requests are running (max_concurrent_requests = {width})")
        more = f"the server has refused more (HTTP {self._refused_by})"
        return WaitReason(f"{len(self._running)} of its requests are running, and {more}")

    def _too_fast(self, entry: QueueEntry, now: float) -> WaitReason | None:
        if self._requests is not None and (at := self._requests.free_at(1, now)) > now:
            return WaitReason(f"requests_per_minute = {self._requests.limit} is reached; free in {at - now:.1f} s", at)
        if self._tokens is not None and (at := self._tokens.free_at(entry.tokens, now)) > now:
            return WaitReason(f"tokens_per_minute = {self._tokens.limit} is reached; free in {at - now:.1f} s", at)
        return None

    def _over_reported_limit(self, entry: QueueEntry, now: float) -> WaitReason | None:
        for reported, bucket in self._reported.values():
            at = bucket.free_at(self._cost(reported, entry), now)
            if now < at <= now + MAX_REPORTED_WAIT_S:
                return WaitReason(
                    f"its limit of {reported.unit} is used up, says the server; free in {at - now:.1f} s", at
                )
        return None

    def _cost(self, reported: ReportedLimit, entry: QueueEntry) -> float:
        if reported.unit == "tokens":
            return entry.tokens * self._share
        return 1.0 if reported.unit == "requests" else self._written

    # --- outcomes ---

    def accepted(self, entry: QueueEntry, now: float) -> None:
        """The server has answered."""
        entry.answered = True
        self.refusals = 0
        if self._slow_start is not None:
            self._slow_start.accepted(len(self._running), now)

    def refused(self, entry: QueueEntry, wait_s: float, now: float, status: int = 429) -> None:
        """The server is overloaded: send nothing for `wait_s`. Requests sent before the refusal
        arrived count as one.
        """
        self._refused_by = status
        self._running.pop(entry, None)
        self._correct(entry, 0, now)
        self._closed_until = max(self._closed_until, now + wait_s)
        self._forget_at = self._closed_until + MINUTE_S
        if entry.sent <= self._sent_when_refused:
            return
        answered = sum(other.answered for other in self._running)
        self._slow_start = SlowStart(answered, len(self._running) + 1, now)
        self._sent_when_refused = self._sent
        self.refusals += 1

    def rejoin(self, entry: QueueEntry) -> None:
        """Put a refused request back where it was in the queue, or at the end if it never was in it."""
        if entry.number:
            self._queue.put_back(entry)
        else:
            self._queue.add(entry)

    def update_limits(self, entry: QueueEntry, reported: Iterable[ReportedLimit], now: float) -> None:
        """Record what the server says is left. It does not know of requests that it had not seen yet."""
        unseen = [other for other in self._running if other.sent > entry.sent and not other.answered]
        for one in reported:
            bucket = Bucket(one.limit, one.left, one.full_in_s, now)
            bucket.spend(sum(self._cost(one, other) for other in unseen), now)
            self._reported[one.name] = one, bucket

    def used(self, entry: QueueEntry, tokens: int, fresh: int, written: int, now: float) -> None:
        """The cost of a response: all tokens, those not from a cache, and those that the model wrote."""
        self._correct(entry, tokens, now)
        self._written = max(1.0, self._written + (written - self._written) * _NEW)
        if entry.tokens:
            self._share += (min(2.0, fresh / entry.tokens) - self._share) * _NEW

    def _correct(self, entry: QueueEntry, tokens: int, now: float) -> None:
        slot, entry.slot = entry.slot, None
        if self._tokens is not None and isinstance(slot, Slot):
            self._tokens.correct(slot, entry.tokens, tokens, now)


def _minute(limit: int | None) -> MinuteWindow | None:
    return None if limit is None else MinuteWindow(limit)
