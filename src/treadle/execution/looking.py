"""Looking at a user's files from an event loop: off the loop, and not for ever.

Owns the threads in which that is done, and the limits. What is read is the caller's business.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

T = TypeVar("T")

# A look at a directory takes milliseconds. What is not there after this long is on a file system that hangs.
LOOK_S: Final = 10.0
# Threads that hang with their file system cannot be ended; more of them than this are not begun.
MAX_LOOKS: Final = 32

_looks = threading.BoundedSemaphore(MAX_LOOKS)


async def look(function: Callable[[], T], seconds: float = LOOK_S) -> T:
    """Run blocking reads in a thread of their own. Raises `TimeoutError` when they take longer than `seconds`.

    The thread then goes on by itself, so `function` must not write. It is not one of the loop's worker threads: those
    are few, and a directory that hangs must not take them from everybody else.
    """
    running = _looks
    if not running.acquire(blocking=False):
        raise TimeoutError(f"{MAX_LOOKS} reads are waiting for a file system that does not answer")
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # nobody can take it back from the thread

    def work() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            running.release()

    threading.Thread(target=work, name="look", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(outcome)
