"""`Channel`: a two-way connection for frames, the same for all transports.

A frame is one message as bytes; a channel does not look inside. Delivery is by callback, so that a frame costs no task
switch; everything happens on one event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol


class Receiver(Protocol):
    """Receives what arrives on a channel. None of these may raise."""

    def frame_received(self, frame: bytes) -> None: ...

    def channel_closed(self, reason: str) -> None:
        """Called exactly once, last."""

    def channel_writable(self) -> None:
        """The peer has caught up: `writable` is true again."""


class ChannelStats(NamedTuple):
    frames_in: int
    frames_out: int
    pending_bytes: int


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

    def attach(self, receiver: Receiver) -> None:
        """Begin delivery. Nothing is read from the transport before."""
        if self._receiver is not None:
            raise RuntimeError("the channel has a receiver already")
        self._receiver = receiver
        if self._reason is None:
            self._begin()
        else:
            receiver.channel_closed(self._reason)

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
        """Queue a frame. After the end it is dropped: the receiver has been told."""

    @abstractmethod
    def pause(self) -> None:
        """Stop delivering: the peer will feel it once its buffers are full."""

    @abstractmethod
    def resume(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """End politely: what was sent still goes out, within a deadline; nothing more is sent or delivered."""

    @abstractmethod
    def abort(self) -> None:
        """End at once."""

    heard_at: float | None = None
    """Loop time of the last byte from the peer, where the transport can tell."""

    broken: bool = False
    """Whether it ended because the peer sent what cannot be divided into frames."""

    def probe(self) -> None:  # noqa: B027 - not every transport can
        """Make the peer show a sign of life; `heard_at` tells when it did."""

    async def wait_closed(self) -> None:
        await self._ended.wait()

    def stats(self) -> ChannelStats:
        return ChannelStats(self._frames_in, self._frames_out, self.pending)

    @abstractmethod
    def _begin(self) -> None:
        """A receiver is there: start reading."""

    def _deliver(self, frame: bytes) -> None:
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
