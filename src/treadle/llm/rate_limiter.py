"""Many threads on one API key: how many requests go to a provider, how fast, and which is next.

`RateLimiter` decides, sans I/O: the time is an argument. `Admission` is its asyncio side: the clock, and the tasks that
wait. Neither knows what a request says or how it is sent.

    enter ─▶ waiting (fair queue) ─▶ running ─▶ accepted ─▶ used ─▶ leave
                 ▲                      │
                 └──── refused ◀────────┘     nothing is sent until the server's wait is over, then a slow start

- The configured limits always hold; so do limits that the server reports, if they reset within seconds. One that resets
  later is tried against: the server's refusal then says how long to wait, and the user sees it.
- A refusal (HTTP 429, or 503 and 529 with a time to wait) stops all requests, not only the refused one: the others
  would be refused as well, and some servers count refusals too. A refused request goes back to its old place.
- The refusal of a request that was sent before the last refusal is no news: only later ones narrow the slow start.
- Each request waits in its caller's task for as long as it takes, and leaves the queue when that task is cancelled. No
  connection timeout runs meanwhile, because there is no connection yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from treadle.llm.model import ModelError, TokenUsage, Waiting
from treadle.llm.rates import (
    LIMIT_HEADERS,
    MINUTE_S,
    Bucket,
    FairQueue,
    MinuteWindow,
    QueueEntry,
    ReportedLimit,
    Slot,
    SlowStart,
    read_limits,
)

# Beyond this, requests fail: a caller that makes so many at once should know.
MAX_WAITING: Final = 4096
# If a reported limit resets later than this, the request is sent anyway: the server's refusal then says how long to
# wait, and the user sees it.
MAX_REPORTED_WAIT_S: Final = 120.0
# Weight of a new observation in the moving averages.
_NEW: Final = 0.2


class TooManyWaiting(Exception):
    """`MAX_WAITING` requests are already waiting."""


class RateLimits(Struct, frozen=True):
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

    def __init__(self, limits: RateLimits) -> None:
        self._at_a_time = limits.at_a_time
        self._requests = _minute(limits.requests_per_minute)
        self._tokens = _minute(limits.tokens_per_minute)
        self._limited = limits != RateLimits()
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
            raise TooManyWaiting
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
        """The response is over, or the request was cancelled, waiting or not. Idempotent."""
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
        if entry is None:
            return None
        # After a refusal nobody goes until the server's time is over.
        if now < self._closed_until:
            until, by = self._closed_until, f"HTTP {self._refused_by}"
            return WaitReason(f"the server has refused a request ({by}); free in {until - now:.1f} s", until)
        # Requests at a time: configured, or learned from refusals.
        width, running = self._width(), len(self._running)
        if width is not None and running >= width:
            if width == self._at_a_time:
                return WaitReason(f"{running} of its requests are running (max_concurrent_requests = {width})")
            more = f"the server has refused more (HTTP {self._refused_by})"
            return WaitReason(f"{running} of its requests are running, and {more}")
        # Configured limits per minute.
        if self._requests is not None and (at := self._requests.free_at(1, now)) > now:
            return WaitReason(f"requests_per_minute = {self._requests.limit} is reached; free in {at - now:.1f} s", at)
        if self._tokens is not None and (at := self._tokens.free_at(entry.tokens, now)) > now:
            return WaitReason(f"tokens_per_minute = {self._tokens.limit} is reached; free in {at - now:.1f} s", at)
        # Limits that the server reports.
        for reported, bucket in self._reported.values():
            at = bucket.free_at(self._cost(reported, entry), now)
            if now < at <= now + MAX_REPORTED_WAIT_S:
                why = f"its limit of {reported.unit} is used up, says the server; free in {at - now:.1f} s"
                return WaitReason(why, at)
        return None

    def _width(self) -> int | None:
        """How many requests may run at a time."""
        if self._slow_start is None:
            return self._at_a_time
        return self._slow_start.width if self._at_a_time is None else min(self._slow_start.width, self._at_a_time)

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


OnWait: TypeAlias = Callable[[Waiting], None]

# Shorter waits go unnoticed, so they are not reported.
TELL_AFTER_S: Final = 0.5
_BYTES_PER_TOKEN: Final = 4


class PendingRequest:
    """One request that wants to be sent: its thread, the callback for a wait (called once), and its
    place in the queue.
    """

    __slots__ = ("entry", "key", "on_wait")

    def __init__(self, key: str, on_wait: OnWait | None) -> None:
        self.key: str = key
        self.on_wait: OnWait | None = on_wait
        self.entry: QueueEntry | None = None  # set when it was refused and will try again


class Admission:
    """Call `enter`, then `accepted` or `refused`, then `leave`. `close` fails all waiting requests."""

    def __init__(self, provider: str, limits: RateLimits) -> None:
        self._provider = provider
        self._limiter = RateLimiter(limits)
        self._futures: dict[QueueEntry, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def stats(self) -> LimiterStats:
        return self._limiter.stats()

    @property
    def refusals(self) -> int:
        """Consecutive refusals over all requests since the last response."""
        return self._limiter.refusals

    async def enter(self, pending: PendingRequest, size: int) -> QueueEntry:
        """Wait until a request of `size` bytes may be sent. Raises `ModelError` if too many are waiting."""
        if pending.entry is None and self._limiter.is_open:
            return self._limiter.enter_now(pending.key, size // _BYTES_PER_TOKEN, _now())
        entry = self._join(pending, size)
        try:
            await self._wait(pending, entry)
        except BaseException:
            self.leave(entry)
            raise
        finally:
            self._futures.pop(entry, None)
        return entry

    def accepted(self, entry: QueueEntry, headers: Mapping[str, str]) -> None:
        now = _now()
        self._limiter.accepted(entry, now)
        if not headers.keys().isdisjoint(LIMIT_HEADERS):
            self._limiter.update_limits(entry, read_limits(headers, time.time()), now)
        self._advance()

    def refused(
        self, pending: PendingRequest, entry: QueueEntry, headers: Mapping[str, str], wait_s: float, status: int
    ) -> None:
        """The server refused with HTTP `status`: nothing is sent for `wait_s`. `pending` may enter again and keeps its
        place.
        """
        now = _now()
        self._limiter.refused(entry, wait_s, now, status)
        self._limiter.update_limits(entry, read_limits(headers, time.time()), now)
        pending.entry = entry
        self._advance()

    def used(self, entry: QueueEntry, usage: TokenUsage) -> None:
        """What a response has cost."""
        fresh = usage.input_tokens - usage.cached_input_tokens + usage.output_tokens
        self._limiter.used(entry, usage.total_tokens, max(0, fresh), usage.output_tokens, _now())

    def leave(self, entry: QueueEntry) -> None:
        """The request is over, however it ended. Idempotent."""
        self._limiter.leave(entry, _now())
        self._advance()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(_closed())

    def _join(self, pending: PendingRequest, size: int) -> QueueEntry:
        if self._closed:
            raise _closed()
        if pending.entry is not None:
            entry, pending.entry = pending.entry, None
            self._limiter.rejoin(entry)
            return entry
        try:
            return self._limiter.join(pending.key, size // _BYTES_PER_TOKEN)
        except TooManyWaiting:
            raise ModelError(
                f"{MAX_WAITING} requests wait for provider `{self._provider}` already; start fewer turns at a time",
                kind="overloaded",
            ) from None

    async def _wait(self, pending: PendingRequest, entry: QueueEntry) -> None:
        future = self._futures[entry] = asyncio.get_running_loop().create_future()
        self._advance()
        if future.done():
            return
        if pending.on_wait is not None:
            await asyncio.wait([future], timeout=TELL_AFTER_S)
            if not future.done():
                reason = self._limiter.wait_reason(_now())
                why = "the requests before it" if reason is None else reason.why
                pending.on_wait(Waiting(self._provider, why, self._limiter.stats().waiting))
                pending.on_wait = None
        await future

    def _advance(self) -> None:
        """Admit requests that may go now, and set the timer for the next one."""
        if not self._futures and self._timer is None:
            return
        limiter, now = self._limiter, _now()
        for entry in limiter.advance(now):
            future = self._futures.get(entry)
            if future is not None and not future.done():
                future.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_reason = limiter.wait_reason(now)
        if wait_reason is not None and wait_reason.until is not None and not self._closed:
            self._timer = asyncio.get_running_loop().call_at(wait_reason.until, self._advance)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _closed() -> ModelError:
    return ModelError("the client is closed; make a new one")
