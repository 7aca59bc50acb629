"""The writing end of a process's stdin: ordered, bounded, and blocked by nobody but its own child."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque

from treadle.errors import INTERNAL_ERROR, ExecError
from treadle.execution.process_values import WriteStatus

# Beyond what the pipe itself holds. A writer waits while more than this is queued.
MAX_QUEUED = 64 << 10
# Write ids that are remembered, so that a write repeated after a reconnect is not written twice.
MAX_WRITE_IDS = 4096


class Stdin:
    """Bytes for a file descriptor, which it closes at the end when it `owns_fd`; a terminal is also read from."""

    def __init__(self, fd: int, *, owns_fd: bool) -> None:
        self._fd = fd
        self._owns_fd = owns_fd
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._queue: deque[memoryview] = deque()
        self._queued = 0
        self._room = asyncio.Event()
        self._watching = False
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._no_more = False  # close_stdin() was called, or the child closed its end
        self._ended = False  # the process is gone

    async def write(self, data: bytes, write_id: str | None = None) -> WriteStatus:
        async with self._lock:
            if write_id is not None and write_id in self._ids:
                return WriteStatus.ACCEPTED
            while self._queued > MAX_QUEUED and not self._no_more and not self._ended:
                self._room.clear()
                await self._room.wait()
            if self._ended:
                raise ExecError("failed to write to process stdin: the process has ended", INTERNAL_ERROR)
            if self._no_more:
                return WriteStatus.STDIN_CLOSED
            self._remember(write_id)
            if data:
                self._queue.append(memoryview(data))
                self._queued += len(data)
                if len(self._queue) == 1:
                    self._flush()
            return WriteStatus.ACCEPTED

    async def close(self) -> None:
        """After what was accepted: end of input."""
        async with self._lock:
            self._no_more = True
            if not self._queue:
                self._release()

    def end(self) -> None:
        """The process is gone: what is queued is dropped, writers are told."""
        self._ended = True
        self._queue.clear()
        self._queued = 0
        self._room.set()
        self._release()

    def _remember(self, write_id: str | None) -> None:
        if write_id is None:
            return
        self._ids[write_id] = None
        if len(self._ids) > MAX_WRITE_IDS:
            self._ids.popitem(last=False)

    def _flush(self) -> None:
        while self._queue:
            chunk = self._queue[0]
            try:
                written = os.write(self._fd, chunk)
            except BlockingIOError:
                self._watch(True)
                return
            except OSError:  # the child closed its stdin: what it will not read is dropped
                self._no_more = True
                self._queue.clear()
                self._queued = 0
                break
            self._queued -= written
            if written == len(chunk):
                self._queue.popleft()
            else:
                self._queue[0] = chunk[written:]
        self._watch(False)
        self._room.set()
        if self._no_more:
            self._release()

    def _watch(self, on: bool) -> None:
        if on == self._watching:
            return
        self._watching = on
        if on:
            self._loop.add_writer(self._fd, self._writable)
        else:
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        self._flush()
        if self._queued <= MAX_QUEUED:
            self._room.set()

    def _release(self) -> None:
        self._watch(False)
        if self._owns_fd and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
