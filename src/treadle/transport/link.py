"""`RpcLink`: a channel and a sans-I/O peer joined into calls, notifications and replies.

It knows JSON-RPC but no methods. Whether an unreadable frame is answered or ends the link is up to the handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from treadle.errors import INTERNAL_ERROR, ChannelClosed, MalformedMessage, RpcError
from treadle.logs.trace import outgoing
from treadle.rpc import (
    Notification,
    Request,
    RequestId,
    RpcPeer,
    encode_failure,
    encode_notification,
    encode_reply,
)
from treadle.rpc.message import MAX_VALUES, count_values
from treadle.transport.channel import Channel

R = TypeVar("R", bound=Struct)


class Handler(Protocol):
    """What the link's owner does with what arrives. None of these may raise."""

    def request_received(self, request: Request) -> None: ...

    def notification_received(self, notification: Notification) -> None: ...

    def malformed_received(self, error: MalformedMessage) -> None: ...

    def link_closed(self, reason: str) -> None: ...

    def link_writable(self) -> None: ...


class RpcLink:
    """Calls out, requests and notifications in."""

    def __init__(
        self,
        channel: Channel,
        handler: Handler,
        *,
        untrusted: bool = False,
        tap: Callable[[bytes], bool] | None = None,
    ) -> None:
        """`tap` sees every frame first and returns whether it has dealt with it: for messages that come by the
        thousand and are worth a decoder of their own."""
        self.channel = channel
        self._tap = tap
        self._handler = handler
        self._peer: RpcPeer[asyncio.Future[Raw]] = RpcPeer(untrusted=untrusted)

    def start(self) -> None:
        self.channel.attach(self)

    async def call(self, method: str, params: Struct | None, result: type[R]) -> R:
        """Send a request and wait for its result. Raises `RpcError` or `ChannelClosed`."""
        if self.channel.closed:
            raise ChannelClosed(f"{self.channel.peer}: the connection is closed")
        waiter: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self.channel.send(self._peer.request(method, params, waiter, outgoing()))
        raw = await waiter
        if len(raw) > MAX_VALUES and count_values(bytes(raw)) > MAX_VALUES:  # before each becomes an object
            raise RpcError(INTERNAL_ERROR, f"the answer to {method} holds more than {MAX_VALUES} JSON values")
        try:
            return msgspec.json.decode(raw, type=result)
        except msgspec.DecodeError as error:
            raise RpcError(INTERNAL_ERROR, f"the answer to {method} is not what the protocol says: {error}") from None

    def post(self, method: str, params: Struct | None) -> None:
        """Send a request whose answer nobody waits for."""
        if not self.channel.closed:
            waiter: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
            waiter.add_done_callback(lambda done: done.cancelled() or done.exception())
            self.channel.send(self._peer.request(method, params, waiter, outgoing()))

    def notify(self, method: str, params: Struct | None = None) -> None:
        self.channel.send(encode_notification(method, params))

    def reply(self, request_id: RequestId, result: Struct | Raw) -> None:
        self.channel.send(encode_reply(request_id, result))

    def fail(self, request_id: RequestId, code: int, message: str, data: object = None) -> None:
        self.channel.send(encode_failure(request_id, code, message, data))

    # --- Receiver ---

    def frame_received(self, frame: bytes) -> None:
        if self._tap is not None and self._tap(frame):
            return
        try:
            message = self._peer.receive(frame)
        except MalformedMessage as error:
            self._handler.malformed_received(error)
            return
        if isinstance(message, Request):
            self._handler.request_received(message)
        elif isinstance(message, Notification):
            self._handler.notification_received(message)
        elif not message.token.done():  # else the caller was cancelled
            if isinstance(message.result, RpcError):
                message.token.set_exception(message.result)
            else:
                message.token.set_result(message.result)

    def channel_closed(self, reason: str) -> None:
        for waiter in self._peer.drain():
            if not waiter.done():
                waiter.set_exception(ChannelClosed(reason))
        self._handler.link_closed(reason)

    def channel_writable(self) -> None:
        self._handler.link_writable()
