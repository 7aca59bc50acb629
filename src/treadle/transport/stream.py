"""Channels over asyncio byte streams: a thin shell around a framer.

It owns what is waiting to be written. Frames sent in one iteration of the event loop leave in one write: for small
frames the system call costs more than everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from treadle.transport.channel import Channel, Receiver

# Output that may wait for a slow peer before `writable` turns false, and the mark at which it turns true again.
HIGH_WATER = 512 << 10
LOW_WATER = 128 << 10
# So much is written without waiting for the end of the step: what a pipe holds. It keeps `writable` true to the facts.
BATCH = 64 << 10
# How long a polite close may take to flush before it becomes an abort.
CLOSE_DEADLINE_S = 5.0
# A ping goes out this often; a peer that shows no sign of life for three of them is taken for dead. A peer machine that
# lost power would otherwise hold its session for ever.
KEEPALIVE_S = 30.0
DEAD_AFTER_S = 3 * KEEPALIVE_S


class Framer(Protocol):
    """Sans-I/O framing; see `websocket` and `stdio`."""

    outgoing: list[bytes]
    ended: bool
    end_reason: str
    broken: bool
    """Whether the peer broke the rules of the framing."""

    def receive(self, data: bytes) -> list[bytes]: ...

    def receive_eof(self) -> None: ...

    def message(self, payload: bytes) -> list[bytes]: ...

    def ping(self) -> list[bytes]: ...

    def close(self) -> list[bytes]: ...


class StreamChannel(Channel, asyncio.Protocol):
    """A channel over one transport, or over a pair of a reading and a writing one (stdio)."""

    def __init__(self, framer: Framer, peer: str, *, keepalive: bool = False) -> None:
        super().__init__(peer)
        self._framer = framer
        self._loop = asyncio.get_running_loop()
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._duplex = False
        self._congested = False
        self._paused = False
        self._reads = False  # until there is a transport
        self._closing = False
        self._early: list[bytes] = []
        self._batch: list[bytes] = []
        self._batch_size = 0
        self._flush_due = False
        self._keepalive = keepalive
        self.heard_at: float | None = self._loop.time()
        self._ticked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # --- Channel ---

    @property
    def writable(self) -> bool:
        return not self._congested

    @property
    def pending(self) -> int:
        return self._batch_size + self._writer.get_write_buffer_size() if self._writer is not None else 0

    def send(self, frame: bytes) -> None:
        if self._writer is None or self._closing or self.closed or self._framer.ended:
            return
        self._frames_out += 1
        self._put(self._framer.message(frame))

    def pause(self) -> None:
        if self._closing:
            return
        self._paused = True
        self._read(False)

    def resume(self) -> None:
        self._paused = False
        early, self._early = self._early, []
        for number, frame in enumerate(early):
            if self._paused:  # a receiver may pause again from inside its callback
                self._early = early[number:]
                return
            if self._closing or self.closed:
                return
            self.deliver(frame)
        if self._framer.ended:
            self.close()
        else:
            self._read(True)

    def probe(self) -> None:
        if self._writer is not None and not self._closing and not self.closed:
            self._put(self._framer.ping())

    def close(self) -> None:
        if self._closing or self.closed:
            return
        self._closing = True
        self._early.clear()
        self._framer.end_reason = self._framer.end_reason or "closed"
        self._set_timer(CLOSE_DEADLINE_S, self.abort)
        if self._writer is None:
            self._finish(self._framer.end_reason)
            return
        self._put(self._framer.close())
        self._flush()
        if not self._framer.ended:
            # Close our half, and wait for the peer to close its own. A socket that is closed with unread input is
            # reset, and a reset drops what is still on its way to the peer; so what comes is read and thrown away.
            try:
                if self._duplex and self._writer.can_write_eof():
                    self._writer.write_eof()
                else:
                    self._writer.close()
            except OSError:  # the peer has just gone
                self._writer.abort()
            self._read(True)
            return
        self._writer.close()
        if self._reader is not None:
            self._reader.close()

    def abort(self) -> None:
        if self.closed:
            return
        if self._writer is not None:
            self._flush()  # what the system takes at once is not lost
            self._writer.abort()
        self._finish(self._framer.end_reason or "the connection was aborted")

    def attach(self, receiver: Receiver) -> None:
        super().attach(receiver)
        if self._keepalive and not self._closing and not self.closed:
            self._ticked_at = self._loop.time()
            self._set_timer(KEEPALIVE_S, self._tick)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        duplex = cast(asyncio.Transport, transport)  # uvloop's is one, but does not inherit from it
        self._duplex = True
        self.write_to(duplex)
        self.read_from(duplex)

    def write_to(self, transport: asyncio.WriteTransport) -> None:
        self._writer = transport
        transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)

    def read_from(self, transport: asyncio.ReadTransport) -> None:
        self._reader = transport
        self._reads = True
        if self._receiver is None:
            self._read(False)

    def _read(self, wanted: bool) -> None:
        """Start or stop reading. `_reads` is ours, because not all transports know: pipes of Python 3.11.2 do not."""
        if self._reader is None or self._reads is wanted or self._reader.is_closing():
            return
        self._reads = wanted
        if wanted:
            self._reader.resume_reading()
        else:
            self._reader.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        self._bytes_in += len(data)
        for frame in () if self._closing else self._framer.receive(data):
            if self._closing:
                return
            if self._paused or self._receiver is None:
                self._early.append(frame)
            else:
                self.deliver(frame)
        self._flush_framer()

    def eof_received(self) -> bool:
        if not self._closing:
            self._framer.receive_eof()
            self._flush_framer()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(self._reason_for(error))

    def reading_lost(self, error: Exception | None) -> None:
        """The reading one of two transports has ended: what waits in the other still goes out."""
        self._reader = None
        self._framer.end_reason = self._reason_for(error)
        self._framer.ended = True
        if not self._closing:
            self._flush_framer()
        elif self._writer is None and not self.closed:
            self._finish(self._framer.end_reason)

    def writing_lost(self, error: Exception | None) -> None:
        """The writing one of two transports has ended: what the peer has written can still be read."""
        self._writer = None
        if self._reader is None:
            self._finish(self._reason_for(error))
        elif not self._closing and not self.closed:
            self._set_timer(CLOSE_DEADLINE_S, self.abort)

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        if self._receiver is not None and not self._closing and not self.closed:
            self._receiver.channel_writable()

    # --- inside ---

    def _put(self, pieces: list[bytes]) -> None:
        """Add to the next write, which comes after this step of the loop, or now when there is enough for one."""
        self._batch += pieces
        for piece in pieces:
            self._batch_size += len(piece)
        if self._batch_size >= BATCH:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_after_step)

    def _flush_after_step(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        batch, self._batch, self._batch_size = self._batch, [], 0
        if batch and self._writer is not None and not self.closed:
            data = b"".join(batch)
            self._bytes_out += len(data)
            self._writer.write(data)

    def _flush_framer(self) -> None:
        # To a peer that sends pings and does not read, pongs are not owed: they would pile up here.
        wanted = self._framer.ended or not self._congested
        if wanted and self._framer.outgoing and self._writer is not None and not self._closing and not self.closed:
            self._put(self._framer.outgoing)
        self._framer.outgoing.clear()
        if self._framer.ended and not self._early:
            self.close()

    def _reason_for(self, error: Exception | None) -> str:
        unplanned = f"connection lost: {error}" if error else "the peer closed the connection"
        return self._framer.end_reason or unplanned

    def _tick(self) -> None:
        now = self._loop.time()
        if self._paused or now - self._ticked_at > 2 * KEEPALIVE_S:
            # It is we who do not listen, or who were stopped: the peer had nothing to answer.
            self.heard_at = now
        self._ticked_at = now
        if now - (self.heard_at or 0.0) > DEAD_AFTER_S:
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
        self._batch, self._batch_size = [], 0
        # One that is both is closed once, and not used again: that of TLS in Python 3.11 breaks after a second close.
        for transport in {self._writer, self._reader} - {None}:
            if transport is not None and not transport.is_closing():
                transport.close()
        self._writer = self._reader = None
        self.broken: bool = self._framer.broken
        self._end(reason)
