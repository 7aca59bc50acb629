"""`Admission`: the asyncio side of the rate limiter of one provider: the clock, and the tasks that wait.

Each request waits in its caller's task for as long as it takes, and leaves the queue when that task is cancelled. No
connection timeout runs meanwhile, because there is no connection yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from treadle.llm.limits.fair_queue import QueueEntry
from treadle.llm.limits.rate_limiter import MAX_WAITING, LimiterStats, Limits, QueueFull, RateLimiter
from treadle.llm.limits.reported_limits import LIMIT_HEADERS, read_limits
from treadle.llm.model import ModelError, TokenUsage, Waiting

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

    def __init__(self, provider: str, limits: Limits) -> None:
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
        except QueueFull:
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
                self._tell(pending.on_wait)
                pending.on_wait = None
        await future

    def _tell(self, on_wait: OnWait) -> None:
        wait_reason = self._limiter.wait_reason(_now())
        waiting = self._limiter.stats().waiting
        on_wait(Waiting(self._provider, "the requests before it" if wait_reason is None else wait_reason.why, waiting))

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
