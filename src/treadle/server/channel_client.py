"""`ChannelClient`: a client at the other end of a channel, in JSON.

It owns the reading of frames and the queue for a client that does not keep up: deltas are joined in it, and a client
that still falls behind without end is cut off, except on stdio, where the agent waits instead, and its requests do.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, structs

from treadle.agent.event import Event
from treadle.errors import MalformedMessage, RpcError
from treadle.rpc import Failure, Reply, Request, decode_lenient, encode_failure
from treadle.server.client_base import Client

if TYPE_CHECKING:
    from treadle.agent.client_requests import ClientRequest
    from treadle.server.app import AppServer
    from treadle.transport import Channel

logger: logging.Logger = logging.getLogger(__name__)

# What may wait for a client. Beyond the first mark the agent pauses for one that must not lose anything.
HIGH_BYTES: Final = 4 << 20
MAX_BYTES: Final = 64 << 20
MAX_WAITING: Final = 32_768
# Deltas are joined up to about this size: some clients take no longer messages than a mebibyte.
MAX_JOINED: Final = 256 << 10

_encode = msgspec.json.Encoder().encode


class _ReplyFrame(Struct):
    id: Any
    result: Any


class _RequestFrame(Struct):
    method: str
    id: int
    params: Any


class ChannelClient(Client):
    def __init__(self, server: AppServer, channel: Channel, *, must_not_lose: bool = False) -> None:
        super().__init__(server)
        self.must_not_lose = must_not_lose
        self._channel = channel
        self._waiting: deque[Event | _Joined | bytes] = deque()
        self._waiting_bytes = 0
        self._deaf = False

    def start(self) -> None:
        self._channel.attach(self)

    def close(self) -> None:
        self._channel.close()

    # --- Receiver ---

    def frame_received(self, frame: bytes) -> None:
        try:
            message = decode_lenient(frame)
        except MalformedMessage as error:
            logger.warning("%s sent something that is no message: %s", self._channel.peer, error)
            return
        if isinstance(message, Request):
            self.receive(message.id, message.method, message.params, message.traceparent)
        elif isinstance(message, Reply):
            self.answered(message.id, message.result.copy())
        elif isinstance(message, Failure):
            self.answered(message.id, RpcError(message.error.code, message.error.message, message.error.data))

    def channel_closed(self, reason: str) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self.gone(reason)

    def channel_writable(self) -> None:
        while self._waiting and self._channel.writable:
            entry = self._waiting.popleft()
            frame = entry if isinstance(entry, bytes) else entry.frame
            self._waiting_bytes -= entry.size if isinstance(entry, _Joined) else len(frame)
            self._channel.send(frame)
        if not self.congested:
            self.server.relieved()
            if self._deaf:
                self._deaf = False
                self._channel.resume()

    # --- out ---

    def send_event(self, event: Event) -> None:
        if not self._waiting and self._channel.writable:
            self._channel.send(event.frame)
        elif not self._join(event):
            self._wait(event, len(event.frame))

    def send_request(self, request: ClientRequest) -> None:
        self._send(_encode(_RequestFrame(request.method, request.id, request.params)))

    def send_reply(self, request_id: Any, result: Any) -> None:
        self._send(_encode(_ReplyFrame(request_id, result)))

    def send_failure(self, request_id: Any, error: RpcError) -> None:
        self._send(encode_failure(request_id, error.code, error.message, error.data))

    @property
    def congested(self) -> bool:
        return not self.closed and self._channel.pending + self._waiting_bytes > HIGH_BYTES

    def _send(self, frame: bytes) -> None:
        if not self._waiting and self._channel.writable:
            self._channel.send(frame)
        else:
            self._wait(frame, len(frame))

    def _wait(self, entry: Event | bytes, size: int) -> None:
        if self.closed:
            return
        self._waiting.append(entry)
        self._waiting_bytes += size
        self._check_room()

    def _check_room(self) -> None:
        if self._waiting_bytes <= MAX_BYTES and len(self._waiting) <= MAX_WAITING:
            return
        if not self.must_not_lose:
            logger.warning("%s does not read what it is told; the connection is cut", self._channel.peer)
            self._channel.abort()
        elif not self._deaf:
            # It asks and does not take the answers: nothing more is read until it does.
            self._deaf = True
            self._channel.pause()

    def _join(self, event: Event) -> bool:
        """Put a delta to the one before it, when both are of the same item."""
        last = self._waiting[-1] if self._waiting else None
        if last is None or isinstance(last, bytes) or not hasattr(event.params, "delta"):
            return False
        joined = last if isinstance(last, _Joined) else _Joined(last)
        if not joined.add(event):
            return False
        self._waiting[-1] = joined
        self._waiting_bytes += len(event.params.delta)
        self._check_room()
        return True


class _Joined:
    """Deltas of one item that will be told as one. They are put together once, at the end: a reader that is far behind
    must not make everyone else wait. `size` is about that of the message."""

    __slots__ = ("_last", "_likeness", "_texts", "size")

    def __init__(self, first: Event) -> None:
        self._last = first
        self._likeness: Any = None  # the params but for the text
        self._texts: list[str] = []
        self.size = len(first.frame)

    def add(self, event: Event) -> bool:
        """False when the delta is not of the same item and kind, or this is long already."""
        if event.method != self._last.method or self.size > MAX_JOINED:
            return False
        first: Any = self._last.params
        delta: Any = event.params
        if not self._texts:
            self._likeness = structs.replace(first, delta="")
            self._texts.append(first.delta)
        if structs.replace(delta, delta="") != self._likeness:
            return False
        self._last = event
        self._texts.append(delta.delta)
        self.size += len(delta.delta)
        return True

    @property
    def frame(self) -> bytes:
        last = self._last
        params = structs.replace(self._likeness, delta="".join(self._texts))
        return Event(last.method, params, last.seq, last.at_ms).frame
