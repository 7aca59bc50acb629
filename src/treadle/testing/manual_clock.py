"""`ManualClock`: a clock that a test turns by hand, so that hours pass in a moment."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

_PASSES: Final = 50
"""Rounds of the event loop in which all that can go on does so: a wait within a wait takes one each."""


class ManualClock:
    """A clock that stands still until the test turns it. It may be looked at from any thread.

    Args:
        start: The seconds that `monotonic` begins with.
        epoch: What `time` begins with.
    """

    def __init__(self, start: float = 0.0, epoch: float = 1_800_000_000.0) -> None:
        self._now = start
        self._epoch = epoch - start
        self._lock = threading.Lock()
        self._sleepers: dict[asyncio.Future[None], float] = {}

    def monotonic(self) -> float:
        """Seconds that have passed on this clock."""
        return self._now

    def time(self) -> float:
        """The same as Unix time."""
        return self._epoch + self._now

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has been turned that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._sleepers[sleeper] = self._now + seconds
        try:
            await sleeper
        finally:
            with self._lock:
                self._sleepers.pop(sleeper, None)

    @property
    def due(self) -> list[float]:
        """When those who sleep wake up, on `monotonic`, the next one first."""
        with self._lock:
            return sorted(self._sleepers.values())

    def turn(self, seconds: float) -> None:
        """Move the clock at once; from any thread.

        Args:
            seconds: How much.
        """
        with self._lock:
            self._now += seconds
            woken = [sleeper for sleeper, at in self._sleepers.items() if at <= self._now]
            for sleeper in woken:
                del self._sleepers[sleeper]
        for sleeper in woken:
            sleeper.get_loop().call_soon_threadsafe(_wake, sleeper)

    async def advance(self, seconds: float) -> None:
        """Move the clock on this event loop: whoever wakes up goes on before the next one does.

        Args:
            seconds: How much.
        """
        end = self._now + seconds
        await self.settle()
        while (due := self.due) and due[0] <= end:
            self.turn(max(0.0, due[0] - self._now))
            await self.settle()
        self.turn(max(0.0, end - self._now))
        await self.settle()

    async def settle(self) -> None:
        """Return when everything on this loop that does not wait for time or another thread has gone on."""
        for _ in range(_PASSES):
            await asyncio.sleep(0)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
