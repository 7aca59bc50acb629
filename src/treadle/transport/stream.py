"""Channels over asyncio byte streams: the thin shell around a framer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from treadle.transport.channel import Channel

# Output that may wait for a slow peer before `writable` turns false, and the mark at which it turns true again.
HIGH_WATER = 512 << 10
LOW_WATER = 128 << 10
# How long a polite close may take to flush before it becomes an abort.
CLOSE_DEADLINE_S = 5.0
# A ping goes out this often; a peer that shows no sign of life for three of them is taken for dead. A peer machine that
# lost power would otherwise hold its session for ever.
KEEPALIVE_S = 30.0
DEAD_AFTER_S = 3 * KEEPALIVE_S


class Framer(Protocol):
    """Sans-I/O framing, see `websocket` and `lines`."""

    outgoing: list[bytes]
    ended: bool
    end_reason: str

    def receive(self, data: bytes) -> list[bytes]: ...

    def receive_eof(self) -> None: ...

    def message(self, payload: bytes) -> list[bytes]: ...

    def ping(self) -> list[bytes]: ...

    def close(self) -> list[bytes]: ...


class StreamChannel(Channel, asyncio.Protocol):
    """A channel over one transport, or over a reading and a writing one (stdio)."""

    def __init__(self, framer: Framer, peer: str, *, keepalive: bool = False) -> None:
        super().__init__(peer)
        self._framer = framer
        self._loop = asyncio.get_running_loop()
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._congested = False
        self._paused = False
        self._early: list[bytes] = []
        self._keepalive = keepalive
        self.heard_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    # --- Channel ---

    @property
    def writable(self) -> bool:
        return not self._congested

    @property
    def pending(self) -> int:
        return self._writer.get_write_buffer_size() if self._writer is not None else 0

    def send(self, frame: bytes) -> None:
        if self._writer is None or self.closed or self._framer.ended:
            return
        self._frames_out += 1
        self._writer.write(b"".join(self._framer.message(frame)))

    def pause(self) -> None:
        self._paused = True
        if self._reader is not None and self._reader.is_reading():
            self._reader.pause_reading()

    def resume(self) -> None:
        self._paused = False
        early, self._early = self._early, []
        for number, frame in enumerate(early):
            if self._paused:  # a receiver may pause again from inside its callback
                self._early = early[number:]
                return
            self._deliver(frame)
        if self._reader is not None and not self._reader.is_closing() and not self._reader.is_reading():
            self._reader.resume_reading()

    def probe(self) -> None:
        if self._writer is not None and not self.closed:
            self._writer.write(b"".join(self._framer.ping()))

    def close(self) -> None:
        if self._writer is None or self.closed:
            self._end("closed")
            return
        self._writer.write(b"".join(self._framer.close()))
        self._writer.close()
        if self._reader is not None:
            self._reader.close()
        self._set_timer(CLOSE_DEADLINE_S, self.abort)

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()
        if self._reader is not None:
            self._reader.close()
        self._finish("the connection was aborted")

    def _begin(self) -> None:
        self.resume()
        if self._keepalive:
            self._set_timer(KEEPALIVE_S, self._tick)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.write_to(transport)
        self.read_from(transport)

    def write_to(self, transport: asyncio.WriteTransport) -> None:
        self._writer = transport
        transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)

    def read_from(self, transport: asyncio.ReadTransport) -> None:
        self._reader = transport
        if self._receiver is None:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        for frame in self._framer.receive(data):
            if self._paused or self._receiver is None:
                self._early.append(frame)
            else:
                self._deliver(frame)
        self._flush_framer()

    def eof_received(self) -> bool:
        self._framer.receive_eof()
        self._flush_framer()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        reason = self._framer.end_reason or (f"connection lost: {error}" if error else "the peer closed the connection")
        self._finish(reason)

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        if self._receiver is not None and not self.closed:
            self._receiver.channel_writable()

    # --- inside ---

    def _flush_framer(self) -> None:
        if self._framer.outgoing and self._writer is not None and not self._writer.is_closing():
            self._writer.write(b"".join(self._framer.outgoing))
        self._framer.outgoing.clear()
        if self._framer.ended and not self.closed:
            self.close()

    def _tick(self) -> None:
        if self._loop.time() - (self.heard_at or 0.0) > DEAD_AFTER_S:
            self._framer.end_reason = f"no sign of life from the peer for {DEAD_AFTER_S:.0f} s"
            self.abort()
            return
        self.probe()
        self._set_timer(KEEPALIVE_S, self._tick)

    def _set_timer(self, delay: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, callback)

    def _finish(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writer is not None and not self._writer.is_closing():
            self._writer.close()
        self._end(reason)
