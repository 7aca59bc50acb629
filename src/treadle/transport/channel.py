"""`Channel`: a two-way connection for frames, the same for all transports; and the simplest, a pair in memory.

A frame is one message as bytes; a channel does not look inside. Delivery is by callback, so that a frame costs no task
switch; everything happens on one event loop. `LoopOwner` guards that: it reports the use of something on another event
loop, or in a forked process, which would otherwise hang forever.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import deque
from typing import NamedTuple, Protocol


class Receiver(Protocol):
    """Receives what arrives on a channel. None of these may raise."""

    def frame_received(self, frame: bytes) -> None: ...

    def channel_closed(self, reason: str) -> None:
        """Called exactly once, last."""

    def channel_writable(self) -> None:
        """The peer has caught up: `writable` is true again."""


class ChannelStats(NamedTuple):
    """`bytes_in` and `bytes_out` are those of the stream, framing included; 0 for a pair in memory."""

    frames_in: int
    frames_out: int
    pending_bytes: int
    bytes_in: int
    bytes_out: int


class Channel(ABC):
    """`send` sends frames; incoming frames go to the attached receiver."""

    peer: str
    """Who is on the other side, for messages to people."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._receiver: Receiver | None = None
        self._reason: str | None = None
        self._ended = asyncio.Event()
        self._frames_in = 0
        self._frames_out = 0
        self._bytes_in = 0
        self._bytes_out = 0

    def attach(self, receiver: Receiver) -> None:
        """Begin delivery. Nothing is read from the transport before."""
        if self._receiver is not None:
            raise RuntimeError("the channel has a receiver already")
        self._receiver = receiver
        if self._reason is None:
            self.resume()
        else:
            receiver.channel_closed(self._reason)

    def detach(self) -> None:
        """End delivery; somebody else may attach."""
        self.pause()
        self._receiver = None

    @property
    def closed(self) -> bool:
        return self._reason is not None

    @property
    @abstractmethod
    def writable(self) -> bool:
        """False while too much waits for the peer: a producer that can wait should, until `channel_writable`."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """Bytes that the peer has not taken yet."""

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Queue a frame. After the end it is dropped: the receiver has had `channel_closed`."""

    @abstractmethod
    def pause(self) -> None:
        """Stop delivering: the peer will feel it once its buffers are full."""

    @abstractmethod
    def resume(self) -> None:
        """Deliver what arrives, again or for the first time."""

    @abstractmethod
    def close(self) -> None:
        """Close: what was sent still goes out, within a deadline; nothing more is sent or delivered."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once; what the peer has not taken is lost."""

    heard_at: float | None = None
    """Loop time of the last byte from the peer, where the transport knows it."""

    token_name: str = ""
    """Whose token the peer came with, where the listener's tokens have names."""

    broken: bool = False
    """Whether the channel ended because the peer sent what cannot be divided into frames."""

    def probe(self) -> None:  # noqa: B027 - not every transport can
        """Ask the peer for a sign of life; `heard_at` changes when it answers."""

    def abort_unless_alive(self, deadline_s: float) -> None:
        """Close it when the peer shows no sign of life within that time."""
        before = self.heard_at
        self.probe()

        def check() -> None:
            if not self.closed and self.heard_at == before:
                self.abort()

        if before is not None:
            asyncio.get_running_loop().call_later(deadline_s, check)

    async def wait_closed(self) -> None:
        await self._ended.wait()

    def stats(self) -> ChannelStats:
        return ChannelStats(self._frames_in, self._frames_out, self.pending, self._bytes_in, self._bytes_out)

    def deliver(self, frame: bytes) -> None:
        """Pass a frame that has arrived to the receiver."""
        self._frames_in += 1
        if self._receiver is not None and self._reason is None:
            self._receiver.frame_received(frame)

    def _end(self, reason: str) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        self._ended.set()
        if self._receiver is not None:
            self._receiver.channel_closed(reason)


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
        self._closed_by_other: str | None = None  # why the other side has closed; takes effect when the inbox is empty

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
        other = self._detach("closed")
        if other is not None:
            other._closed_by_other = "the other side closed the connection"
            other._schedule()

    def abort(self) -> None:
        other = self._detach("the connection was aborted")
        if other is not None:
            self._loop.call_soon(other._detach, "the connection was cut")

    def _detach(self, reason: str) -> MemoryChannel | None:
        """Close this side; returns the other one, if it is still open."""
        other, self._other = self._other, None
        self._inbox.clear()
        self._inbox_bytes = 0
        self._end(reason)
        return None if other is None or other.closed else other

    def _schedule(self) -> None:
        waiting = bool(self._inbox) or self._closed_by_other is not None
        if waiting and not self._paused and not self._scheduled and not self.closed:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._paused or self.closed:
            return
        if self._inbox:
            frame = self._inbox.popleft()
            self._inbox_bytes -= len(frame)
            other = self._other
            self.deliver(frame)
            if other is not None and not other.closed and other._congested and other.pending <= HIGH_WATER // 2:
                other._congested = False
                if other._receiver is not None:
                    other._receiver.channel_writable()
        elif self._closed_by_other is not None:
            self._detach(self._closed_by_other)
        self._schedule()


def memory_pair(left: str = "left", right: str = "right") -> tuple[MemoryChannel, MemoryChannel]:
    """Two joined channels; what one sends the other receives."""
    one, two = MemoryChannel(right), MemoryChannel(left)
    one._other, two._other = two, one
    return one, two


class LoopOwner:
    """The event loop, and the process, that something was opened on, which are the only ones it can be used on. `what`
    names the thing in error messages, as in "this client"."""

    __slots__ = ("_loop", "_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a forked process, which has only a copy of it."""
        return os.getpid() != self._pid

    @property
    def gone(self) -> bool:
        """Whether the loop is closed, so that nothing will ever happen on it."""
        return self._loop.is_closed()

    def problem(self) -> str | None:
        """Why it cannot be used from here; None if it can."""
        running = _running_loop()
        if running is self._loop:
            return None
        if self.forked:
            return forked(self._what, self._pid)
        if running is None:
            return no_loop(self._what)
        return (
            f"{self._what} was opened on another event loop and works on that one only: each asyncio.run() has one of "
            "its own, so open it and use it inside one of them"
        )


def needs_loop(what: str) -> str | None:
    """Why `what` cannot be opened here; None if it can."""
    return None if _running_loop() is not None else no_loop(what)


def no_loop(what: str) -> str:
    return (
        f"{what} needs asyncio, and no asyncio event loop runs here (trio has one of its own): with anyio choose the "
        "asyncio backend, or use the blocking `Codex` on a thread"
    )


def forked(what: str, pid: int) -> str:
    return (
        f"{what} was opened in process {pid} and cannot be used in process {os.getpid()}, which was forked from it: "
        "make a new one here"
    )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
