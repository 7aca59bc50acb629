"""Sockets to listen on, and who is at the other end of an accepted one."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Hashable
from typing import NamedTuple

from treadle.errors import TreadleError
from treadle.transport.address import Address

# A server that is alive but overrun keeps us waiting for its answer; this is long enough to call it alive.
PROBE_S = 1.0
# Connections that the system holds for us while we are busy. When it holds no more, clients try again after a second.
BACKLOG = 1024


class ListenError(TreadleError):
    """The address cannot be listened on; the message says why and what to do."""


class Peer(NamedTuple):
    """`group` identifies a peer for counting: its network address, or its process for unix sockets."""

    name: str
    group: Hashable
    user: int | None
    """Known for unix sockets only."""


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
    """Who has connected. Raises `OSError` when that cannot be told any more."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _ = struct.unpack("3i", credentials)
        return Peer("unix socket", pid, user)
    host, port = connection.getpeername()[:2]
    if connection.family == socket.AF_INET6:
        # One machine usually has the whole lower half to choose from.
        return Peer(f"{host}:{port}", socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8], None)
    return Peer(f"{host}:{port}", host, None)


def set_nodelay(connection: socket.socket) -> None:
    """Small messages leave at once; with Nagle's algorithm an echo costs 40 ms."""
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _check_folder(path: str) -> None:
    """Whoever can rename things there could put a socket of his own in the place of ours."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return  # which is told better when it is tried
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
