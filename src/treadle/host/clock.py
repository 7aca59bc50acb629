"""`Clock`: where a session gets the time. Tests substitute one that they control."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)

_CANCEL_S: Final = 5.0
"""For what was cancelled to end. Real seconds, whatever the clock: a task that does not end is a bug."""


class Clock(Protocol):
    """Where a session gets the time."""

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


class DeadlineExceeded(Exception):
    """Something was not done within its limit."""


async def within(clock: Clock, limit_s: float | None, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives. After `limit_s` it is cancelled, and `DeadlineExceeded` raised.

    Args:
        clock: Whose seconds they are.
        limit_s: None has no limit.
        work: What is to be done.
    """
    doing = asyncio.create_task(work)
    tasks: set[asyncio.Task[Any]] = {doing}
    if limit_s is not None and math.isfinite(limit_s):
        tasks.add(asyncio.create_task(clock.sleep(limit_s)))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise DeadlineExceeded
    finally:
        await end_tasks(tasks)


async def end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel what runs, and come back when it has ended."""
    running = {task for task in tasks if not task.done()}
    for task in running:
        task.cancel()
    if running:
        _, running = await asyncio.wait(running, timeout=_CANCEL_S)
    for task in running:
        logger.error("%s does not end when it is cancelled", task.get_name())
    for task in tasks - running:
        if not task.cancelled():
            # Nobody asks any more: what it raised is not worth a warning.
            task.exception()
