"""`LoopThread`: an event loop of its own in a daemon thread, started on first use."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from treadle.host.faults import WrongProcess

T = TypeVar("T")


class LoopThread:
    """Where an agent does its work, whichever thread or loop calls it.

    Args:
        name: The name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ended = False
        self._process = os.getpid()
        self.callback: threading.Thread | None = None
        """The thread on which a callback runs, for which `inside` is true as well."""

    @property
    def started(self) -> bool:
        return self._thread is not None

    @property
    def elsewhere(self) -> bool:
        """Whether it is of the process that this one was forked from: its thread is not here."""
        return self._thread is not None and self._process != os.getpid()

    def inside(self) -> bool:
        """Whether the caller is on this thread, or in a callback: there nothing may wait for the agent."""
        return threading.current_thread() in (self._thread, self.callback)

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Have a coroutine run; raises `RuntimeError` after `end`, and `WrongProcess`."""
        if self.elsewhere:  # before the lock, which may never be released here
            raise WrongProcess
        with self._lock:
            work = make()
            if self._ended:
                raise RuntimeError("the loop has ended")
            if self._loop is None:
                ready: Future[asyncio.AbstractEventLoop] = Future()

                async def run() -> None:
                    self._stop = asyncio.Event()
                    ready.set_result(asyncio.get_running_loop())
                    await self._stop.wait()

                self._process = os.getpid()
                self._thread = threading.Thread(target=lambda: asyncio.run(run()), name=self._name, daemon=True)
                self._thread.start()
                self._loop = ready.result()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have something called on the loop; nothing happens when it has never started or has ended."""
        if self.elsewhere:
            return
        with self._lock:
            if self._loop is not None and not self._ended:
                self._loop.call_soon_threadsafe(function, *arguments)

    def end(self, timeout: float | None = None) -> None:
        """End the loop with all that runs on it, and wait for that. It may be called again, and on the loop itself."""
        with self._lock:
            loop, self._ended = self._loop, True
        thread = self._thread
        if loop is None or thread is None or self._stop is None:
            return
        if thread.is_alive():
            try:
                loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                return  # it has ended in this moment
        if not self.inside():
            thread.join(timeout)
