"""Retries when the server is busy."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from treadle.client.sdk_errors import is_retryable_error

T = TypeVar("T")


def retry_on_overload(
    op: Callable[[], T],
    *,
    max_attempts: int = 3,
    initial_delay_s: float = 0.25,
    max_delay_s: float = 2.0,
    jitter_ratio: float = 0.2,
) -> T:
    """Call a function until it succeeds, as long as the server says that it is busy.

    Other errors, and the last one, are raised as they are.

    Args:
        op: The function.
        max_attempts: How often it is called at most.
        initial_delay_s: Seconds to wait after the first attempt; after each other one it is twice as long.
        max_delay_s: The longest wait.
        jitter_ratio: How much longer or shorter each wait may be, as a part of it.
    """
    delays = _delays(max_attempts, initial_delay_s, max_delay_s, jitter_ratio)

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
    """`retry_on_overload` for a function that gives something to await.

    Args:
        op: The function.
        max_attempts: How often it is called at most.
        initial_delay_s: Seconds to wait after the first attempt; after each other one it is twice as long.
        max_delay_s: The longest wait.
        jitter_ratio: How much longer or shorter each wait may be, as a part of it.
    """
    import asyncio  # the blocking client shares this module and may not need asyncio

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
    import random  # only when the server is busy

    return (
        max(0.0, delay + random.uniform(-jitter, jitter) * delay)
        for delay in (min(most, first * 2 ** min(number, 60)) for number in range(attempts - 1))
    )
