"""Listening: `ws://IP:PORT` and `unix://PATH`, WebSocket on both.

It owns the socket, the handshake and the rule that a listener off loopback has a token. It does not know what is
served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from treadle.errors import TreadleError
from treadle.transport.address import Address
from treadle.transport.channel import Channel
from treadle.transport.handshake import BadRequest, Gate, response, split_head
from treadle.transport.stream import StreamChannel
from treadle.transport.websocket import WebSocketFramer

HANDSHAKE_DEADLINE_S = 10.0
# Connections that have not finished their handshake: more than this at once is an attack or a mistake.
MAX_HANDSHAKES = 256
# A server that is alive but overrun keeps us waiting for its answer; this is long enough to call it alive.
PROBE_S = 1.0


class ListenError(TreadleError):
    """The address cannot be listened on; the text says why and what to do."""


class Listener:
    """An open listener. `url` is what clients connect to."""

    def __init__(self, server: asyncio.Server, url: str, socket_path: str | None) -> None:
        self._server = server
        self._socket_path = socket_path
        self.url = url

    async def close(self) -> None:
        """Accept no more. Open channels are not touched."""
        self._server.close()
        if self._socket_path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._socket_path)


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
    gate = Gate(token, health_paths, any_path)
    loop = asyncio.get_running_loop()
    pending: set[_Accepting] = set()

    def protocol() -> _Accepting:
        return _Accepting(gate, accept, pending, text_only)

    if address.scheme == "unix":
        sock = _unix_socket(address.path)
        server = await loop.create_unix_server(protocol, sock=sock)
        return Listener(server, f"unix://{address.path}", address.path)
    if address.scheme != "ws":
        raise ListenError(f"cannot listen on {address}: use ws://IP:PORT or unix://PATH")
    if not address.is_loopback and token is None:
        raise ListenError(
            f"refusing to listen on {address.host} without a token: everyone who reaches the port could run commands. "
            "Make a token file and pass --token-file FILE, or listen on 127.0.0.1"
        )
    # A name can stand for several addresses, each with a free port of its own.
    host = "127.0.0.1" if address.host == "localhost" else address.host
    try:
        server = await loop.create_server(protocol, host, address.port)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from None
    port = server.sockets[0].getsockname()[1]
    return Listener(server, str(Address("ws", host=host, port=port)), None)


def _unix_socket(path: str) -> socket.socket:
    """A bound socket that only its owner can connect to; a stale one in its place is replaced, a live one is not."""
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            _remove_stale(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ListenError(f"cannot listen on unix://{path}: {error}") from None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(path)
    except OSError as error:
        sock.close()
        raise ListenError(f"cannot listen on unix://{path}: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    return sock


def _remove_stale(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise ListenError(f"cannot listen on unix://{path}: {error.strerror or error}") from None
    raise ListenError(f"cannot listen on unix://{path}: another server is listening there")


class _Accepting(asyncio.Protocol):
    """A connection until its handshake is done; then the channel takes the transport over."""

    def __init__(
        self, gate: Gate, accept: Callable[[Channel], None], pending: set[_Accepting], text_only: bool
    ) -> None:
        self._gate = gate
        self._text_only = text_only
        self._accept = accept
        self._pending = pending
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        set_nodelay(transport)
        if len(self._pending) >= MAX_HANDSHAKES:
            transport.abort()
            return
        self._pending.add(self)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_DEADLINE_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._buffer += data
        try:
            split = split_head(self._buffer)
        except BadRequest as error:
            self._refuse(transport, response(HTTPStatus.BAD_REQUEST, str(error)))
            return
        if split is None:
            return
        head, rest = split
        answer, upgraded = self._gate.answer(head)
        if not upgraded:
            self._refuse(transport, answer)
            return
        self._done()
        transport.write(answer)
        channel = StreamChannel(
            WebSocketFramer(client=False, text_only=self._text_only), _peer_name(transport), keepalive=True
        )
        transport.set_protocol(channel)
        channel.connection_made(transport)
        if rest:
            channel.data_received(rest)
        self._accept(channel)

    def connection_lost(self, error: Exception | None) -> None:
        self._done()

    def _refuse(self, transport: asyncio.Transport, answer: bytes) -> None:
        self._done()
        transport.write(answer)
        transport.close()

    def _done(self) -> None:
        self._pending.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()


def set_nodelay(transport: asyncio.BaseTransport) -> None:
    """Small messages leave at once; with Nagle's algorithm an echo costs 40 ms."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _peer_name(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix socket"
