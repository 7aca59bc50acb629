"""Sockets: connecting to an address, sockets to listen on, and who is at the other end of a connection."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Mapping
from typing import NamedTuple, cast

from treadle.errors import ChannelClosed
from treadle.transport.address import Address, ListenError
from treadle.transport.listener_secret import resolve_address
from treadle.transport.stream import StreamChannel
from treadle.transport.websocket import BadRequest, Upgrade, WebSocketFramer, split_head

# A server that is alive but overrun keeps us waiting for its answer; this is long enough to call it alive.
PROBE_S = 1.0
# Connections that the system holds for us while we are busy. When it holds no more, clients try again after a second.
BACKLOG = 1024


class Peer(NamedTuple):
    """Who is at the other end of a connection."""

    name: str
    user: int | None
    """Known for unix sockets only."""

    @property
    def is_stranger(self) -> bool:
        """Whether it runs as somebody else than this user and root, as far as is known."""
        return self.user not in (None, 0, os.geteuid())


async def tcp_socket(host: str, port: int) -> socket.socket:
    """A listening socket; of a name that stands for several addresses, the first."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, place = found[0]
        sock = socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {Address('ws', host, port)}: {error.strerror or error}") from None
    sock.setblocking(False)
    return sock


def unix_socket(path: str) -> socket.socket:
    """A listening socket for its owner only; a stale one in its place is replaced, a live one is not."""
    try:
        _check_folder(os.path.dirname(path))
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
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ListenError(f"cannot listen on unix://{path}: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    sock.setblocking(False)
    return sock


def peer_of(connection: socket.socket) -> Peer:
    """The peer of a connection. Raises `OSError` when it has gone."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        return Peer("unix socket", user)
    host, port = connection.getpeername()[:2]
    return Peer(f"{host}:{port}", None)


def check_server(connection: socket.socket) -> None:
    """Raise `ChannelClosed` if a unix socket is served by a stranger, who may have taken the place of our server. For
    clients, before they send anything."""
    if connection.family == socket.AF_UNIX and (peer := peer_of(connection)).is_stranger:
        raise ChannelClosed(
            f"the server there runs as user {peer.user}, not as you (user {os.geteuid()}) or root, so nothing was "
            "sent; start one of your own, with a socket in a folder that only you can write to"
        )


def set_nodelay(connection: socket.socket) -> None:
    """Small messages leave at once; with Nagle's algorithm an echo costs 40 ms."""
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _check_folder(path: str) -> None:
    """Whoever can rename things there could put a socket of his own in the place of ours."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return  # binding fails with a better message
    if status.st_uid not in (os.geteuid(), 0):
        problem = "belongs to another user"
    elif status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        problem = "can be written by others"
    else:
        return
    raise PermissionError(f"the folder {path} {problem}; use one of your own, with mode 0700")


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


async def connect(
    address: Address,
    *,
    token: str | None = None,
    deadline_s: float = 10.0,
    environ: Mapping[str, str] | None = None,
) -> StreamChannel:
    """Open a WebSocket channel; raises `ChannelClosed` with the reason.

    Without a token, that of a listener on this machine is looked up in the home, which `environ` names (None: this
    process's).
    """
    address, token, advice = resolve_address(address, token, os.environ if environ is None else environ)
    place = (address.authority, address.path) if address.scheme in ("ws", "wss") else ("localhost", "/")
    upgrade = Upgrade.new(*place, token, advice)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadline_s):
            if address.scheme == "unix":
                _, opening = await loop.create_unix_connection(lambda: _Opening(upgrade, str(address)), address.path)
            elif address.scheme in ("ws", "wss"):
                _, opening = await loop.create_connection(
                    lambda: _Opening(upgrade, str(address)),
                    address.host,
                    address.port,
                    ssl=True if address.scheme == "wss" else None,
                )
            else:
                raise ChannelClosed(f"cannot connect to {address}: use ws://, wss:// or unix://, or a command line")
            try:
                return await opening.opened
            except BaseException:
                opening.abort()
                raise
    except TimeoutError:
        raise ChannelClosed(f"cannot connect to {address}: no answer within {deadline_s:g} s") from None
    except OSError as error:
        raise ChannelClosed(f"cannot connect to {address}: {error.strerror or error}") from None
    except UnicodeError:
        raise ChannelClosed(f"cannot connect to {address}: that is no host name") from None


class _Opening(asyncio.Protocol):
    """A connection until the server has accepted the upgrade."""

    def __init__(self, upgrade: Upgrade, peer: str) -> None:
        self._upgrade = upgrade
        self._peer = peer
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[StreamChannel] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        try:
            check_server(connection)
        except ChannelClosed as error:
            self._fail(ChannelClosed(f"cannot connect to {self._peer}: {error}"))
            return
        set_nodelay(connection)
        transport.write(self._upgrade.request())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            split = split_head(self._buffer)
            if split is None:
                return
            self._upgrade.check(*split)
        except (BadRequest, ChannelClosed) as error:
            self._fail(ChannelClosed(f"{self._peer}: {error}"))
            return
        transport = self._transport
        assert transport is not None
        channel = StreamChannel(WebSocketFramer(client=True), self._peer, keepalive=True)
        transport.set_protocol(channel)
        channel.connection_made(transport)
        if split[1]:
            channel.data_received(split[1])
        if self.opened.done():  # the caller waits no more
            transport.abort()
        else:
            self.opened.set_result(channel)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ChannelClosed(f"{self._peer}: the connection ended during the handshake"))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: ChannelClosed) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # seen: a caller whose time is up before it has the connection never looks
        self.abort()
