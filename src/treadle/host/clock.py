"""`Clock`: what a session knows of time. Tests give it one that they turn by hand."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where a session looks for the time."""

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring."""

    def time(self) -> float:
        """Seconds since 1970, for people and for the store."""

    async def sleep(self, seconds: float) -> None:
        """Come back after that long."""


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
