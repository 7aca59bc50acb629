"""Sockets: connecting to an address, sockets to listen on, and who is at the other end of a connection."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

from treadle.errors import ChannelClosed
from treadle.transport.address import Address, ListenError
from treadle.transport.stream import StreamChannel
from treadle.transport.websocket import BadRequest, Upgrade, WebSocketFramer, split_head

if TYPE_CHECKING:
    import ssl

# A server that is alive but overrun keeps us waiting for its answer; this is long enough to call it alive.
PROBE_S = 1.0
# Connections that the system holds for us while we are busy. When it holds no more, clients try again after a second.
BACKLOG = 1024
# What Linux has room for.
MAX_PATH = 107
_UNIX = getattr(socket, "AF_UNIX", None)


class Peer(NamedTuple):
    """The other end of a connection."""

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
        with short_path(path) as short:
            sock.bind(short)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ListenError(f"cannot listen on unix://{path}: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    sock.setblocking(False)
    return sock


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """The path of a socket as the system takes it: of a longer one the folder is opened, and named by its number."""
    if len(os.fsencode(path)) <= MAX_PATH:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def peer_of(connection: socket.socket) -> Peer:
    """The peer of a connection. Raises `OSError` when it has gone."""
    if connection.family == _UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        return Peer("unix socket", user)
    host, port = connection.getpeername()[:2]
    return Peer(f"{host}:{port}", None)


def check_server(connection: socket.socket) -> None:
    """Raise `ChannelClosed` if a unix socket is served by a stranger, who may have taken the place of our server. For
    clients, before they send anything."""
    if connection.family == _UNIX and (peer := peer_of(connection)).is_stranger:
        raise ChannelClosed(
            f"the server there runs as user {peer.user}, not as you (user {os.geteuid()}) or root, so nothing was "
            "sent; start one of your own, with a socket in a folder that only you can write to"
        )


def set_nodelay(connection: socket.socket) -> None:
    """Small messages leave at once; with Nagle's algorithm an echo costs 40 ms."""
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _check_folder(path: str) -> None:
    """Refuse a folder where others can rename things: they could put a socket of their own in the place of ours."""
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
            with short_path(path) as short:
                probe.connect(short)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise ListenError(f"cannot listen on unix://{path}: {error.strerror or error}") from None
    raise ListenError(f"cannot listen on unix://{path}: another server is listening there")


class ResolvedAddress(NamedTuple):
    """What is needed to connect: the address, the token, and advice for the user if the server refuses."""

    address: Address
    token: str | None
    advice: str


def resolve_address(address: Address, token: str | None, environ: Mapping[str, str]) -> ResolvedAddress:
    """Find the token: as given, or in the address, or in the file that a server of this user left for its clients."""
    is_plain = address.scheme == "ws"
    # With TLS only for an address: a name is checked by the certificate, and stays the name.
    may_be_ours = address.is_loopback and (is_plain or (address.scheme == "wss" and address.host != "localhost"))
    if token is not None or not may_be_ours or address.path not in ("", "/"):
        return ResolvedAddress(address, token, "")
    # A name may resolve to several addresses, and our server may listen on only one of them.
    host = "127.0.0.1" if address.host == "localhost" else address.host
    exact = Address(address.scheme, host, address.port, "/")
    ways = "use the URL that the server printed when it started, or pass its token"
    if not sys.platform.startswith("linux"):  # where such a server runs
        return ResolvedAddress(address, None, ways)
    from treadle.transport.listener_secret import FOLDER, file_name, home_path, look_up

    home = home_path(environ)
    if home is None:
        return ResolvedAddress(address, None, f"{ways}: this user has no home where it could be looked up")
    path = os.path.join(home, FOLDER, file_name(exact))
    found, why = look_up(path, str(exact))
    return ResolvedAddress(address if found is None else exact, found, f"{ways}{why}")


def unix_family() -> int:
    """Raises `ChannelClosed` on a system that has none."""
    if not hasattr(socket, "AF_UNIX"):
        raise ChannelClosed(f"this system ({sys.platform}) has no unix sockets: use a server with ws:// or wss://")
    return socket.AF_UNIX


async def connect(
    address: Address,
    *,
    token: str | None = None,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    deadline_s: float = 10.0,
    environ: Mapping[str, str] | None = None,
) -> StreamChannel:
    """Open a WebSocket channel; raises `ChannelClosed` with the reason.

    Without a token, that of a listener on this machine is looked up in the home, which `environ` names (None: this
    process's). `ca_file` has the issuers to trust, in place of those of the system; `cert_file` and `key_file` (which
    may be one) are for a server that wants a certificate of its clients.
    """
    address, token, advice = resolve_address(address, token, os.environ if environ is None else environ)
    place = (address.authority, address.path) if address.scheme in ("ws", "wss") else ("localhost", "/")
    upgrade = Upgrade.new(*place, token, advice)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadline_s):
            if address.scheme == "unix":
                unix_family()
                _, opening = await loop.create_unix_connection(
                    lambda: ClientOpening(upgrade, str(address)), address.path
                )
            elif address.scheme in ("ws", "wss"):
                _, opening = await loop.create_connection(
                    lambda: ClientOpening(upgrade, str(address)),
                    address.host,
                    address.port,
                    ssl=client_context(ca_file, cert_file, key_file) if address.scheme == "wss" else None,
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
        raise ChannelClosed(f"cannot connect to {address}: {connect_problem(error)}") from None
    except UnicodeError:
        raise ChannelClosed(f"cannot connect to {address}: that is no host name") from None


def client_context(ca_file: str | None, cert_file: str | None = None, key_file: str | None = None) -> ssl.SSLContext:
    """See `tls.client_context`."""
    from treadle.transport import tls  # only for wss://

    return tls.client_context(ca_file, cert_file, key_file)


def connect_problem(error: OSError) -> str:
    """Why a connection could not be made, for people."""
    if type(error).__module__ == "ssl":
        from treadle.transport.tls import problem_of  # has been loaded by who uses it

        return problem_of(error) or str(error)
    return error.strerror or str(error)


class ClientOpening(asyncio.Protocol):
    """A connection until the server has accepted the upgrade. `make_channel` makes what it is then."""

    def __init__(self, upgrade: Upgrade, peer: str, make_channel: Callable[[], StreamChannel] | None = None) -> None:
        self._upgrade = upgrade
        self._peer = peer
        self._make_channel = make_channel
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
        if self._make_channel is not None:
            channel = self._make_channel()
        else:
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
        why = f": {connect_problem(error)}" if isinstance(error, OSError) else ""
        self._fail(ChannelClosed(f"{self._peer}: the connection ended during the handshake{why}"))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: ChannelClosed) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # seen: a caller whose time is up before it has the connection never looks
        self.abort()
