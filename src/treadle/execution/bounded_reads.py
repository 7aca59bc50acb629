"""Reading a user's files from an event loop: in a thread, and not for ever.

Owns the threads in which that is done, and the limits. What is read is up to the caller.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

# Reading a directory takes milliseconds. What is not there after this long is on a file system that hangs.
READ_S: Final = 10.0
# Threads that hang with their file system cannot be ended; more of them than this are not begun.
MAX_READS: Final = 32
READER: Final[str] = "bounded-read"
"""What the threads are called."""
# A thread waits this long for the next read: to start one costs more than most reads.
_IDLE_S: Final = 2.0


class _Readers:
    """Threads that read, as many as are needed at a time. A read that takes too long is abandoned with its thread."""

    def __init__(self, most: int = MAX_READS) -> None:
        self._most = most
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()  # guards the numbers below
        self._threads = 0
        self._idle = 0
        self._waiting = 0
        self._abandoned = 0

    def put(self, job: Callable[[], None]) -> None:
        """Raises `TimeoutError` when all threads hang."""
        with self._lock:
            if self._abandoned >= self._most:
                raise TimeoutError(f"{self._most} reads are waiting for a file system that does not answer")
            self._waiting += 1
            is_short = self._waiting > self._idle and self._threads < self._most
            if is_short:
                self._threads += 1
                self._idle += 1
        self._jobs.put(job)
        if is_short:
            threading.Thread(target=self._run, name=READER, daemon=True).start()

    def abandon(self) -> None:
        with self._lock:
            self._abandoned += 1

    def recover(self) -> None:
        """A read that was abandoned has come to its end."""
        with self._lock:
            self._abandoned -= 1

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except Empty:
                if self._may_end():
                    return
                continue
            with self._lock:
                self._waiting -= 1
                self._idle -= 1
            job()
            del job  # it holds what was read
            with self._lock:
                self._idle += 1

    def _may_end(self) -> bool:
        with self._lock:
            if self._waiting >= self._idle:  # a job is on its way to this thread
                return False
            self._threads -= 1
            self._idle -= 1
            return True


_readers = _Readers()


async def read_in_thread(function: Callable[[], T], seconds: float = READ_S) -> T:
    """Run blocking reads in a thread. Raises `TimeoutError` when they take longer than `seconds`.

    The thread then goes on by itself, so `function` must not write. It is not one of the loop's worker threads: those
    are few, and a directory that hangs must not take them from everybody else.
    """
    readers = _readers
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # nobody can take it back from the thread

    def work() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    readers.put(work)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.wrap_future(outcome)
    except TimeoutError:
        readers.abandon()
        outcome.add_done_callback(lambda _: readers.recover())
        raise
