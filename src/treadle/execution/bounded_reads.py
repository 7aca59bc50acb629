"""Reading a user's files from an event loop: in a thread, and not for ever.

Owns the threads in which that is done, and the limits. What is read is up to the caller.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

T = TypeVar("T")

# Reading a directory takes milliseconds. What is not there after this long is on a file system that hangs.
READ_S: Final = 10.0
# Threads that hang with their file system cannot be ended; more of them than this are not begun.
MAX_READS: Final = 32

_slots = threading.BoundedSemaphore(MAX_READS)


async def read_in_thread(function: Callable[[], T], seconds: float = READ_S) -> T:
    """Run blocking reads in a thread of their own. Raises `TimeoutError` when they take longer than `seconds`.

    The thread then goes on by itself, so `function` must not write. It is not one of the loop's worker threads: those
    are few, and a directory that hangs must not take them from everybody else.
    """
    slots = _slots
    if not slots.acquire(blocking=False):
        raise TimeoutError(f"{MAX_READS} reads are waiting for a file system that does not answer")
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # nobody can take it back from the thread

    def work() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            slots.release()

    threading.Thread(target=work, name="bounded-read", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(outcome)
