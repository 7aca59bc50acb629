"""Trying again when the server is busy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from treadle.client.errors import is_retryable_error

T = TypeVar("T")


def retry_on_overload(
    op: Callable[[], T],
    *,
    max_attempts: int = 3,
    initial_delay_s: float = 0.25,
    max_delay_s: float = 2.0,
    jitter_ratio: float = 0.2,
) -> T:
    """Call `op` until it succeeds, up to `max_attempts` times while the server says that it is busy.

    Between two attempts it waits: `initial_delay_s`, then twice as long each time up to `max_delay_s`, each time up to
    `jitter_ratio` more or less. Other errors, and the last one, are raised as they are.
    """
    delays = _delays(max_attempts, initial_delay_s, max_delay_s, jitter_ratio)
    import time

    while True:
        try:
            return op()
        except Exception as error:
            delay = next(delays, None)
            if delay is None or not is_retryable_error(error):
                raise
        time.sleep(delay)


async def async_retry_on_overload(
    op: Callable[[], Awaitable[T]],
    *,
    max_attempts: int = 3,
    initial_delay_s: float = 0.25,
    max_delay_s: float = 2.0,
    jitter_ratio: float = 0.2,
) -> T:
    """`retry_on_overload` for a function that gives something to await."""
    import asyncio

    delays = _delays(max_attempts, initial_delay_s, max_delay_s, jitter_ratio)
    while True:
        try:
            return await op()
        except Exception as error:
            delay = next(delays, None)
            if delay is None or not is_retryable_error(error):
                raise
        await asyncio.sleep(delay)


def _delays(attempts: int, first: float, most: float, jitter: float) -> Iterator[float]:
    if attempts < 1:
        raise ValueError("max_attempts must be at least 1")
    import random

    return (
        max(0.0, delay + random.uniform(-jitter, jitter) * delay)
        for delay in (min(most, first * 2 ** min(number, 60)) for number in range(attempts - 1))
    )
