"""Blocking connections to a server: the standard streams of a program, a socket, or a server in this process.

Each has one reader thread, which passes what arrives to the `Sink`. Frames may be sent from any thread. None of them
looks whether it is used in a fork: the client does that (see `shell`).
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Protocol

from treadle.client.codex_config import CodexConfig
from treadle.client.sdk_errors import ConfigurationError, TransportClosedError
from treadle.errors import ChannelClosed
from treadle.own_python import pin_imports

if TYPE_CHECKING:
    import asyncio
    import socket

    from treadle.client.async_connection import LocalServer
    from treadle.client.server_child import DrainDeadline, ServerChild
    from treadle.transport.websocket import WebSocketFramer

logger: logging.Logger = logging.getLogger(__name__)

CHUNK: Final = 1 << 18
CONNECT_S: Final = 10.0
WRITE_S: Final = 60.0
"""A connection to a server that reads nothing for so long is ended."""
SILENCE_S: Final = 20.0
"""A server on a socket that is silent for so long is pinged, and after three times that the connection is ended."""
CLOSE_S: Final = 10.0
START_S: Final = 120.0
"""Our own server has to be imported, from a slow disk perhaps."""
MAX_OWED: Final = 48
"""Pongs that wait for the writer; only the latest matter."""


class Sink(Protocol):
    """Receives what arrives."""

    def frames_received(self, frames: list[bytes]) -> None: ...

    def connection_ended(self, failure: TransportClosedError) -> None:
        """Take the reason of the end: once, and last."""


class Connection(ABC):
    """Carries frames, until `close` or until the sink is notified that it ended."""

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Send a frame. Raises `TransportClosedError`."""

    @abstractmethod
    def close(self) -> None:
        """End the connection, and what was started for it. May be called again, not from the reading thread."""


def open_connection(config: CodexConfig, sink: Sink) -> Connection:
    """Connect as `config` says. Raises `TransportClosedError`, `FileNotFoundError` or `CodexError`."""
    config.check()
    pin_imports()  # what the server runs may write where this process looks for modules
    if config.url is not None:
        return SocketConnection(config.url, config, sink)
    if config.codex_bin is not None or config.launch_args_override is not None:
        return ChildConnection(config, sink)
    return LocalConnection(config, sink)


class ChildConnection(Connection):
    """Lines over the standard streams of a program that we start."""

    def __init__(self, config: CodexConfig, sink: Sink) -> None:
        from treadle.client.server_child import ServerChild  # only for a server that we start

        self._child: ServerChild = ServerChild(config)
        self._sink = sink
        self._lock = threading.Lock()
        self._closed = False
        self._last_words: DrainDeadline | None = None  # once the server has ended
        self._looked_at = 0.0  # when that was last checked
        os.set_blocking(self._child.stdin_fd, False)
        os.set_blocking(self._child.stdout_fd, False)
        self._reader = threading.Thread(target=self._read, name="treadle client", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, frame: bytes) -> None:
        with self._lock:
            if self._closed:
                raise TransportClosedError("the connection to the server is closed")
            try:
                rest = memoryview(frame + b"\n")
                while rest:  # the descriptor does not block, so that a server that is stuck is noticed
                    try:
                        rest = rest[os.write(self._child.stdin_fd, rest) :]
                    except BlockingIOError:
                        _wait_writable(self._child.stdin_fd)
                return
            except BrokenPipeError:
                failure = self._child.failure("has closed its standard input")
            except OSError as error:
                failure = TransportClosedError(f"the server is stuck: {error.strerror or error}")
        # Part of the frame may have gone: nothing that follows would be understood.
        self._sink.connection_ended(failure)
        raise failure

    def _read(self) -> None:
        # Importing treadle.transport loads asyncio, which a blocking client may not need.
        from treadle.transport.stdio import LineFramer

        framer = LineFramer()
        exited = self._child.exit_fd()
        try:
            while (data := self._receive(exited)) and not framer.ended:
                frames = framer.receive(data)
                if frames:
                    self._sink.frames_received(frames)
            why = "has closed its standard output"
        except OSError as error:
            why = f"cannot be read from: {error.strerror or error}"
        finally:
            if exited is not None:
                os.close(exited)
        if self._closed:
            self._sink.connection_ended(TransportClosedError("the connection to the server was closed"))
        elif framer.ended:
            self._sink.connection_ended(self._child.misbehaved(f"broke the framing: {framer.end_reason}"))
        else:
            self._sink.connection_ended(self._child.failure(why))

    def _receive(self, exited: int | None) -> bytes:
        """Bytes of the server; empty at the end: of its output, or of itself while somebody else holds its output."""
        if self._outlived(exited):
            return b""
        descriptor = self._child.stdout_fd
        poll = select.poll()
        for watched in (descriptor, exited):
            if watched is not None:
                poll.register(watched, select.POLLIN)
        while True:
            try:
                return os.read(descriptor, CHUNK)
            except BlockingIOError:
                ready = [fd for fd, _ in poll.poll()]
                if descriptor not in ready:
                    return b""

    def _outlived(self, exited: int | None) -> bool:
        """Whether the server has ended, and another holder of its output has gone on writing for too long."""
        from treadle.client.server_child import SILENCE_S, DrainDeadline  # only for a server that we start

        now = time.monotonic()
        if exited is None or now - self._looked_at < SILENCE_S:  # to look costs as much as to read
            return False
        self._looked_at = now
        if self._last_words is None:
            poll = select.poll()
            poll.register(exited, select.POLLIN)
            self._last_words = DrainDeadline(now) if poll.poll(0) else None
        return self._last_words is not None and self._last_words.left(now, heard_at=now) <= 0

    def close(self) -> None:
        self._closed = True
        polite = self._lock.acquire(timeout=0.2)  # else a thread is stuck in a write, until the server is gone
        if polite:
            self._lock.release()
        self._child.end(polite=polite)
        if threading.current_thread() is not self._reader:
            self._reader.join(CLOSE_S)
        if not self._reader.is_alive():
            self._child.release()


def _wait_writable(descriptor: int) -> None:
    if not _wait(descriptor, WRITE_S, writing=True):
        raise OSError(0, f"it has read nothing for {WRITE_S:.0f} s")


def _wait(descriptor: int, seconds: float, *, writing: bool = False) -> bool:
    """Whether there is something to read, or room to write, within some seconds."""
    if not hasattr(select, "poll"):  # Windows, whose `select` has no limit for the numbers of sockets
        given = [descriptor]
        return any(select.select([] if writing else given, given if writing else [], [], seconds))
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if writing else select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class SocketConnection(Connection):
    """WebSocket over TCP or a unix socket.

    The socket is non-blocking. `_lock` guards single calls on it, because TLS allows only one at a time; `_turn` guards
    whole frames. A sender that waits for buffer space holds only `_turn`, so the reader goes on.
    """

    def __init__(self, url: str, config: CodexConfig, sink: Sink) -> None:
        # Importing treadle.transport loads asyncio, which a blocking client may not need.
        from treadle.transport.address import shown_url

        self._peer = shown_url(url)
        self._sink = sink
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._closed = False
        self._owed: list[bytes] = []  # pongs that the reader could not send
        self._socket, self._framer, early = _connect(url, config)
        self._heard = time.monotonic()
        self._reader = threading.Thread(target=self._read, args=(early,), name="treadle client", daemon=True)
        self._reader.start()

    def send(self, frame: bytes) -> None:
        with self._turn:
            if self._closed:
                raise TransportClosedError("the connection to the server is closed")
            try:
                self._put(self._framer.message(frame))
                owed, self._owed = self._owed, []
                self._put(owed)
                return
            except (OSError, ValueError) as error:
                failure = TransportClosedError(f"{self._peer}: {getattr(error, 'strerror', None) or error}")
        # Part of the frame may have gone: nothing that follows would be understood.
        self._sink.connection_ended(failure)
        raise failure

    def _put(self, pieces: list[bytes]) -> None:
        """Send all of it, while we hold `_turn`."""
        rest = memoryview(b"".join(pieces))
        while rest:
            try:
                with self._lock:
                    rest = rest[self._socket.send(rest) :]
            except OSError as error:
                if not _would_block(error):
                    raise
                _wait_writable(self._socket.fileno())

    def _read(self, early: bytes) -> None:
        framer = self._framer
        data: bytes | None = early
        try:
            while True:
                if data:
                    self._heard = time.monotonic()
                    frames = framer.receive(data)
                    owed, framer.outgoing = framer.outgoing, []
                    self._owe(owed)
                    if frames:
                        self._sink.frames_received(frames)
                elif data is None:
                    silence = time.monotonic() - self._heard
                    if silence > 3 * SILENCE_S:
                        raise OSError(0, f"no sign of life from the server for {silence:.0f} s")
                    self._owe(framer.ping())
                if framer.ended:
                    break
                data = self._receive()
                if data == b"":
                    framer.receive_eof()
            reason = framer.end_reason
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "strerror", None) or error)
        if self._closed:
            reason = "the connection was closed"
        self._sink.connection_ended(TransportClosedError(f"{self._peer}: {reason}"))

    def _owe(self, pieces: list[bytes]) -> None:
        """Send it if nobody else is sending; else the other thread does, afterwards."""
        if not pieces or self._closed:
            return
        if self._turn.acquire(blocking=False):
            try:
                self._put(pieces)
            finally:
                self._turn.release()
        else:
            self._owed = [*self._owed, *pieces][-MAX_OWED:]

    def _receive(self) -> bytes | None:
        """Bytes of the server, empty at the end; None after some silence."""
        while True:
            with self._lock:
                try:
                    return self._socket.recv(CHUNK)
                except OSError as error:
                    if not _would_block(error):
                        raise
            if not _wait(self._socket.fileno(), SILENCE_S):
                return None

    def close(self) -> None:
        import socket  # loaded since it connected

        if self._closed:
            return
        self._closed = True
        polite = self._turn.acquire(timeout=0.2)
        try:
            if polite:
                self._put(self._framer.close())
        except (OSError, ValueError):
            logger.debug("%s had gone already", self._peer)
        finally:
            if polite:
                self._turn.release()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            logger.debug("%s had gone already", self._peer)
        if threading.current_thread() is not self._reader:
            self._reader.join(CLOSE_S)
        self._socket.close()


def _would_block(error: OSError) -> bool:
    """Whether a socket has no bytes or no space now. TLS has two errors of its own, whose module is not loaded here."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def _connect(url: str, config: CodexConfig) -> tuple[socket.socket, WebSocketFramer, bytes]:
    """An open WebSocket connection, and the bytes that came with the handshake."""
    # Only for a server with a URL: these load asyncio and websockets.
    import socket

    from treadle.transport.address import Address, AddressError, shown_url
    from treadle.transport.sockets import check_server, client_context, connect_problem, resolve_address, unix_family
    from treadle.transport.websocket import BadRequest, Upgrade, WebSocketFramer, split_head

    opened: socket.socket | None = None
    try:
        address = Address.parse(url)
        unix = address.scheme == "unix"
        if address.scheme == "stdio":
            raise AddressError(f"{shown_url(url)!r}: a client connects to ws://, wss:// or unix://")
        address, token, advice = resolve_address(address, config.token, {**os.environ, **(config.env or {})})
        place = ("localhost", "/") if unix else (address.authority, address.path)
        upgrade = Upgrade.new(*place, token, advice)
        if unix:
            opened = socket.socket(unix_family())
            opened.settimeout(CONNECT_S)
            opened.connect(address.path)
            check_server(opened)
        else:
            opened = socket.create_connection((address.host, address.port), CONNECT_S)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.scheme == "wss":
                context = client_context(config.ca_file, config.cert_file, config.key_file)
                opened = context.wrap_socket(opened, server_hostname=address.host)
        opened.sendall(upgrade.request())
        buffer = b""
        until = time.monotonic() + CONNECT_S
        while (split := split_head(buffer)) is None:
            opened.settimeout(max(0.001, until - time.monotonic()))  # of all of it, not of each piece
            data = opened.recv(CHUNK)
            if not data:
                raise ChannelClosed("the connection ended during the handshake")
            buffer += data
        upgrade.check(*split)
    except (OSError, UnicodeError, ChannelClosed, BadRequest, AddressError) as error:
        if opened is not None:
            opened.close()
        if isinstance(error, TimeoutError):
            reason = f"no answer within {CONNECT_S:g} s"
        else:
            reason = connect_problem(error) if isinstance(error, OSError) else str(error)
        raise TransportClosedError(f"cannot connect to {shown_url(url)}: {reason}") from None
    opened.setblocking(False)
    return opened, WebSocketFramer(client=True), split[1]


class LocalConnection(Connection):
    """Our own server, on a thread of its own with its event loop."""

    def __init__(self, config: CodexConfig, sink: Sink) -> None:
        self._sink = sink
        self._started = threading.Event()
        self._problem: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: LocalServer | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, args=(config,), name="treadle server", daemon=True)
        self._thread.start()
        if not self._started.wait(START_S):
            raise TransportClosedError(f"the server in this process has not started within {START_S:g} s")
        if isinstance(self._problem, ConfigurationError):
            raise self._problem
        if self._problem is not None:
            raise TransportClosedError(f"the server in this process cannot start: {self._problem}") from self._problem

    def send(self, frame: bytes) -> None:
        loop, server = self._loop, self._server
        try:
            if loop is None or server is None:
                raise RuntimeError
            loop.call_soon_threadsafe(server.send, frame)
        except RuntimeError:  # the loop is closed
            raise TransportClosedError("the connection to the server is closed") from None

    def _run(self, config: CodexConfig) -> None:
        import asyncio  # only for a server in this process

        try:
            asyncio.run(self._serve(config))
        except BaseException as error:
            self._problem = error
            if self._started.is_set():
                logger.exception("the server in this process has failed")
        finally:
            self._loop = None
            self._started.set()
            self._sink.connection_ended(TransportClosedError("the connection to the server was closed"))

    async def _serve(self, config: CodexConfig) -> None:
        # Only for a server in this process.
        import asyncio

        from treadle.client.async_connection import LocalServer

        self._stop = asyncio.Event()
        self._server = LocalServer(config, self._sink)
        self._loop = asyncio.get_running_loop()
        self._started.set()
        try:
            await self._stop.wait()
        finally:
            await self._server.close()

    def close(self) -> None:
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            try:
                loop.call_soon_threadsafe(stop.set)
            except RuntimeError:
                logger.debug("the server in this process has ended already")
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)
