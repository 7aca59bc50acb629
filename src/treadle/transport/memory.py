"""Two channels joined in memory, for embedding a server and for tests."""

from __future__ import annotations

import asyncio
from collections import deque

from treadle.transport.channel import Channel

# Frames that one side may have sent before the other has taken them; beyond it `writable` turns false.
HIGH_WATER = 1 << 20


class MemoryChannel(Channel):
    """One end of a pair. Delivery happens in a later iteration of the loop, as with a real transport."""

    def __init__(self, peer: str) -> None:
        super().__init__(peer)
        self._loop = asyncio.get_running_loop()
        self._other: MemoryChannel | None = None
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._paused = True
        self._scheduled = False
        self._congested = False
        self._goodbye: str | None = None  # the other side has closed; told when the inbox is empty

    @property
    def writable(self) -> bool:
        return self.pending <= HIGH_WATER

    @property
    def pending(self) -> int:
        return self._other._inbox_bytes if self._other is not None else 0

    def send(self, frame: bytes) -> None:
        other = self._other
        if other is None or self.closed or other.closed:
            return
        self._frames_out += 1
        other._inbox.append(frame)
        other._inbox_bytes += len(frame)
        self._congested = self._congested or not self.writable
        other._schedule()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._schedule()

    def close(self) -> None:
        other = self._leave("closed")
        if other is not None:
            other._goodbye = "the other side closed the connection"
            other._schedule()

    def abort(self) -> None:
        other = self._leave("the connection was aborted")
        if other is not None:
            self._loop.call_soon(other._leave, "the connection was cut")

    def _leave(self, reason: str) -> MemoryChannel | None:
        """End this side; the other one, if it is still there."""
        other, self._other = self._other, None
        self._inbox.clear()
        self._inbox_bytes = 0
        self._end(reason)
        return None if other is None or other.closed else other

    def _begin(self) -> None:
        self.resume()

    def _schedule(self) -> None:
        waiting = bool(self._inbox) or self._goodbye is not None
        if waiting and not self._paused and not self._scheduled and not self.closed:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._paused or self.closed:
            return
        if self._inbox:
            self._deliver_one()
        elif self._goodbye is not None:
            self._leave(self._goodbye)
        self._schedule()

    def _deliver_one(self) -> None:
        frame = self._inbox.popleft()
        self._inbox_bytes -= len(frame)
        other = self._other
        self._deliver(frame)
        if other is not None and not other.closed and other._congested and other.pending <= HIGH_WATER // 2:
            other._congested = False
            if other._receiver is not None:
                other._receiver.channel_writable()


def memory_pair(left: str = "left", right: str = "right") -> tuple[MemoryChannel, MemoryChannel]:
    """Two joined channels; what one sends the other receives."""
    one, two = MemoryChannel(right), MemoryChannel(left)
    one._other, two._other = two, one
    return one, two
