"""How a test's client reaches a server: the pipes of a child, a WebSocket, a unix socket.

They share no code with what is tested: JSON lines by the standard library, frames by `websockets`.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from http.client import HTTPConnection
from typing import IO, Protocol
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect, unix_connect

from kit.processes import DEADLINE_S


class Gone(Exception):
    """The server has ended the connection."""


class Transport(Protocol):
    def send(self, text: str) -> None: ...

    def receive(self) -> str:
        """The next message; raises `Gone` at the end, and fails when none comes."""


class Pipes:
    """Standard input and output of a child."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._stdin = stdin
        self._fd = stdout.fileno()
        self._buffer = b""

    def send(self, text: str) -> None:
        self._stdin.write(text.encode() + b"\n")
        self._stdin.flush()

    def receive(self) -> str:
        end = time.monotonic() + DEADLINE_S
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the server is silent; it began to write {self._buffer[:200]!r}"
            data = os.read(self._fd, 1 << 20)
            if not data:
                raise Gone
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


class Socket:
    """A WebSocket, over TCP or a unix socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, text: str) -> None:
        self.connection.send(text)

    def receive(self) -> str:
        try:
            frame = self.connection.recv(DEADLINE_S)
        except ConnectionClosed:
            raise Gone from None
        assert isinstance(frame, str), "the server sends text"
        return frame


@contextmanager
def socket_to(url: str, *, headers: Mapping[str, str] | None = None, max_queue: int | None = None) -> Iterator[Socket]:
    """A connection on which nothing was said. With `max_queue` it reads no further when so many messages wait."""
    if url.startswith("unix://"):
        opened = unix_connect(url.removeprefix("unix://"), compression=None, max_size=None, max_queue=max_queue)
    else:
        opened = connect(
            url,
            additional_headers=dict(headers or {}),
            compression=None,
            max_size=None,
            max_queue=max_queue,
            proxy=None,
            open_timeout=DEADLINE_S,
        )
    with opened as connection:
        yield Socket(connection)


def http_to(url: str) -> AbstractContextManager[HTTPConnection]:
    """Plain HTTP to where a WebSocket is listened for."""
    place = urlsplit(url)
    assert place.hostname is not None
    return closing(HTTPConnection(place.hostname, place.port, timeout=DEADLINE_S))
