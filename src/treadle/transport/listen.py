"""Listening: `ws://IP:PORT` and `unix://PATH`, WebSocket on both.

It owns handshakes and admission: a listener off loopback needs a token, a unix socket is checked for its peer's user,
handshakes have a time limit and connections a maximum. It does not know what is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from treadle.transport.accept_loop import AcceptLoop, reject
from treadle.transport.address import Address
from treadle.transport.channel import Channel
from treadle.transport.half_open import HalfOpen
from treadle.transport.sockets import ListenError, Peer, peer_of, set_nodelay, tcp_socket, unix_socket
from treadle.transport.stream import StreamChannel
from treadle.transport.websocket import WebSocketFramer
from treadle.transport.websocket_handshake import AccessControl, BadRequest, response, split_head

__all__ = ["HANDSHAKE_DEADLINE_S", "MAX_CONNECTIONS", "ListenError", "Listener", "listen"]

# A client sends its request with the connection. This is for a slow line; bytes that drip in do not extend it.
HANDSHAKE_DEADLINE_S = 3.0
# Open connections. More than any use that we know of, and each costs a descriptor and its buffers. Where there are
# fewer descriptors, half of them stay free for what the connections are for: files, commands, models.
MAX_CONNECTIONS = 1024


class Listener:
    """An open listener. `url` is what clients connect to, complete even if its path is the secret."""

    def __init__(
        self, address: Address, access: AccessControl, accept: Callable[[Channel], None], text_only: bool
    ) -> None:
        self.address = address
        self.access = access
        self.accept = accept
        self.text_only = text_only
        self.max_connections: int = min(MAX_CONNECTIONS, _descriptors() // 2)
        self.open: set[Channel] = set()
        self.half_open: HalfOpen[_Handshake] = HalfOpen()
        self._loop = asyncio.get_running_loop()
        self._accepting: AcceptLoop | None = None
        self._joining: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return self.address.url

    def begin(self, sock: socket.socket) -> None:
        self._accepting = AcceptLoop(sock, self._accepted, self._wait_s, self._make_room)

    async def close(self) -> None:
        """Accept no more. Open channels are not touched."""
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None
        while len(self.half_open):
            self._evict(self.half_open.evict_oldest())
        if self._joining:
            await asyncio.wait(self._joining)
        if self.address.scheme == "unix":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.path)

    def _accepted(self, connection: socket.socket) -> None:
        try:
            peer = peer_of(connection)
        except OSError:  # it has gone already
            connection.close()
            return
        if peer.user not in (None, 0, os.geteuid()):
            reject(connection, HTTPStatus.FORBIDDEN, "this socket is for the user that runs the server, and root")
            return
        handshake = _Handshake(self, peer)
        self._evict(self.half_open.add(peer.group, handshake, self._loop.time()))
        joining = self._loop.create_task(self._join(connection, handshake), name="handshake")
        self._joining.add(joining)
        joining.add_done_callback(self._joining.discard)

    async def _join(self, connection: socket.socket, handshake: _Handshake) -> None:
        try:
            set_nodelay(connection)
            await self._loop.connect_accepted_socket(lambda: handshake, connection)
        except OSError:  # it has gone already
            connection.close()
            handshake.connection_lost(None)

    def _wait_s(self) -> float:
        return self.half_open.wait_s(self._loop.time())

    def _make_room(self) -> bool:
        """Who has just come may be about to speak and is waited for: the shortage ends one way or the other."""
        found = len(self.half_open) > 0
        while (slow := self.half_open.evict_slow(self._loop.time())) is not None:
            self._evict(slow)
        return found

    def _evict(self, handshake: _Handshake | None) -> None:
        if handshake is not None:
            handshake.abort()


async def listen(
    address: Address,
    accept: Callable[[Channel], None],
    *,
    token: str | None = None,
    health_paths: tuple[str, ...] = ("/readyz",),
    any_path: bool = False,
    text_only: bool = False,
) -> Listener:
    """Listen and call `accept` with every channel that passes the handshake.

    `any_path`: a WebSocket may be opened at every path that is not for health. `text_only`: binary messages are
    ignored.
    """
    access = AccessControl(token, health_paths, any_path)
    if address.scheme == "unix":
        sock = unix_socket(address.path)
    elif address.scheme != "ws":
        raise ListenError(f"cannot listen on {address}: use ws://IP:PORT or unix://PATH")
    elif not address.is_loopback and token is None:
        raise ListenError(
            f"refusing to listen on {address.host} without a token: everyone who reaches the port could run commands. "
            "Make a token file and pass --token-file FILE, or listen on 127.0.0.1"
        )
    else:
        # A name can stand for several addresses, each with a free port of its own.
        host = "127.0.0.1" if address.host == "localhost" else address.host
        sock = await tcp_socket(host, address.port)
        address = Address("ws", host, sock.getsockname()[1], "/")
    listener = Listener(address, access, accept, text_only)
    listener.begin(sock)
    return listener


class _Handshake(asyncio.Protocol):
    """A connection until its handshake is done; then the channel takes over the transport."""

    def __init__(self, listener: Listener, peer: Peer) -> None:
        self._listener = listener
        self._peer = peer
        self._buffer = b""
        self._answered = False
        self._aborted = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._aborted:
            self._transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_DEADLINE_S, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._buffer += data
        try:
            split = split_head(self._buffer)
        except BadRequest as error:
            self._refuse(response(HTTPStatus.BAD_REQUEST, str(error)))
            return
        if split is None:
            return
        head, rest = split
        answer, upgraded = self._listener.access.answer(head)
        limit = self._listener.max_connections
        if not upgraded:
            self._refuse(answer)
        elif len(self._listener.open) >= limit:
            text = f"{limit} connections are open, which is this server's limit; close one and try again"
            self._refuse(response(HTTPStatus.SERVICE_UNAVAILABLE, text))
        else:
            self._upgrade(answer, rest)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.half_open.left(self._peer.group, self, asyncio.get_running_loop().time())
        self._stop_clock()

    def _upgrade(self, answer: bytes, rest: bytes) -> None:
        transport, listener = self._transport, self._listener
        assert transport is not None
        listener.half_open.passed(self._peer.group, self)
        self._stop_clock()
        transport.write(answer)
        framer = WebSocketFramer(client=False, text_only=listener.text_only)
        channel = _Admitted(framer, self._peer.name, listener.open)
        transport.set_protocol(channel)
        channel.connection_made(transport)
        if rest:
            channel.data_received(rest)
        listener.accept(channel)

    def _refuse(self, answer: bytes) -> None:
        """It counts until it has gone: a peer need not take the answer."""
        self._answered = True
        self._buffer = b""
        assert self._transport is not None
        self._transport.write(answer)
        self._transport.close()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


class _Admitted(StreamChannel):
    """A channel that counts against the limit for as long as it holds its descriptor."""

    def __init__(self, framer: WebSocketFramer, peer: str, everyone: set[Channel]) -> None:
        super().__init__(framer, peer, keepalive=True)
        self._everyone = everyone
        everyone.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._everyone.discard(self)
        super().connection_lost(error)


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else soft
