"""`HttpConnection`: one request at a time to one server, over a socket that stays open between requests; and
`HttpPool`, the connections to one provider.

A connection owns how its socket is opened (directly or through a proxy, with TLS or without), and the one retry that is
always safe: when a kept socket turns out to have been closed before the server answered. All other retries are the
caller's. The pool owns how many connections there are, when an idle one is closed, and the TLS context they share.

`HttpProtocol` is one open socket: it owns the transport, waiting for bytes, the idle timeout, and the limit on unread
data.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from msgspec import Struct

from treadle.http.http1 import ResponseHead, ResponseReader, encode_request
from treadle.http.http_errors import (
    ConnectFailed,
    ConnectionLost,
    HttpUnusable,
    IdleTimeout,
    NotHttp,
    ProxyRefused,
    connect_failure_of,
    tls_problem_of,
)
from treadle.http.target import HttpTarget, may_be_set, proxy_for

if TYPE_CHECKING:
    import ssl


# Above this reading pauses: a slow consumer slows the server down instead of filling memory.
MAX_UNREAD: Final = 1024 * 1024
# Closing takes one round of the event loop, but can take longer in the middle of a TLS handshake.
RELEASE_S: Final = 1.0


class HttpProtocol(asyncio.Protocol):
    """Call `send`, `read_head`, then `read` until it returns nothing. For one task at a time; any task may `close`."""

    def __init__(self, idle_timeout_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._response: ResponseReader | None = None
        self._failure: NotHttp | None = None
        self._lost = False  # no more bytes will arrive
        self._waiter: asyncio.Future[bool] | None = None
        self._gone = self._loop.create_future()
        self._reading_paused = False
        self._writing_paused = False

    # --- for the connection ------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._lost and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Whether the response is complete, read or not, and another request may follow."""
        response = self._response
        if self._transport is None or response is None or not (response.ended and response.reusable):
            return False
        return self.is_open and self._transport.get_write_buffer_size() == 0

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    def send(self, request: bytes, *, tunnel: bool = False) -> None:
        """Queue the request; what the socket does not take at once is written while we wait for the response."""
        self._response = ResponseReader(tunnel=tunnel)
        self._resume()
        if self.is_open:  # otherwise `read_head` raises
            self.transport.write(request)

    async def read_head(self) -> ResponseHead:
        response = self._current()
        while self._writing_paused and not (response.began or self._lost):
            await self._wait()
        while response.head is None:
            self._check(response)
            await self._wait()
        return response.head

    async def read(self) -> bytes:
        """The body bytes that have arrived, waiting only if there are none; empty at the end."""
        response = self._current()
        while not response.unread:
            if response.ended:
                return b""
            self._check(response)
            await self._wait()
        self._resume()
        return response.take_body()

    def take_transport(self, transport: asyncio.Transport) -> None:
        """Switch to the transport of TLS inside a proxy tunnel."""
        self._transport = transport
        self._response = None

    def discard_response(self) -> None:
        """Between two requests: drop what is left of the last response."""
        self._resume()
        self._response = None

    def close(self) -> None:
        """Immediately; a task waiting for bytes gets `ConnectionLost`."""
        self._lose()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """After `close`: wait until the socket is released."""
        if self._transport is not None:
            await asyncio.wait([self._gone], timeout=RELEASE_S)

    # --- called by the event loop ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio.Transport

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.ended:
            self.close()  # unsolicited bytes must never be taken for the next response
            return
        try:
            response.receive_data(data)
        except NotHttp as error:
            self._failure = error
            self.close()
            return
        if response.unread > MAX_UNREAD and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        response = self._response
        if response is not None and not self._lost:
            with suppress(NotHttp):  # truncated; `_lost` reports that
                response.receive_eof()
        self._lose()

    def connection_lost(self, error: Exception | None) -> None:
        self._lose()
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake()

    # --- internal state ----------------------------------------------------------------------------------------------

    def _current(self) -> ResponseReader:
        if self._response is None:
            raise RuntimeError("nothing was sent yet")
        return self._response

    def _check(self, response: ResponseReader) -> None:
        if self._failure is not None:
            raise self._failure
        if self._lost:
            raise ConnectionLost(began=response.began)

    def _lose(self) -> None:
        """No more bytes. A response that is already complete stays readable."""
        self._lost = True
        self._wake()

    def _resume(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            if self.is_open:
                self.transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def _wait(self) -> None:
        """Until bytes arrive, the write buffer drains or the connection ends."""
        if self._waiter is not None:
            raise RuntimeError("two tasks read from one connection")
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(self._idle_timeout_s, _expire, waiter)
        try:
            if not await waiter:
                raise IdleTimeout
        finally:
            timer.cancel()
            self._waiter = None


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


ContextSource: TypeAlias = Callable[[], Awaitable["ssl.SSLContext"]]
# Gives the addresses that may be connected to for a host and a port, or raises.
Resolver: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

# Requests beyond this wait for a connection to be released.
MAX_CONNECTIONS: Final = 1024
MAX_IDLE: Final = 128

CONNECT_S: Final = 30.0
# Between the requests of a turn there may be a command that takes a while. After a longer one a new connection is not
# felt, and one that nobody uses is a descriptor, here and there.
KEEP_ALIVE_S: Final = 60.0
# A name with several addresses: the next is tried when the one before is silent for so long (RFC 8305).
NEXT_ADDRESS_S: Final = 0.25
# With a resolver they are tried one after the other.
PER_ADDRESS_S: Final = 5.0

# Computed from the body here, so the caller's are dropped.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class HttpRequest(Struct, frozen=True):
    """A POST, or a GET when there is no body, if `method` does not say otherwise. Header names are lower case."""

    target: HttpTarget
    headers: list[tuple[bytes, bytes]]
    body: bytes | None
    method: bytes = b""

    def encode(self, proxy: HttpTarget | None) -> bytes:
        """The request as bytes for the server, or for a proxy that forwards it (plain HTTP only: TLS goes through a
        tunnel)."""
        given = {name for name, _ in self.headers}
        headers = [] if b"host" in given else [(b"Host", self.target.authority)]
        path, basic = self.target.path, self.target.basic
        if proxy is not None and self.target.scheme == "http":
            path = b"http://" + self.target.authority + path
            if proxy.basic is not None and b"proxy-authorization" not in given:
                headers.append((b"Proxy-Authorization", proxy.basic))
        dropped = _FRAMING if basic is None else _FRAMING | {b"authorization"}
        headers += [header for header in self.headers if header[0] not in dropped]
        if basic is not None:
            headers.append((b"Authorization", basic))
        if self.body is None:
            return encode_request(self.method or b"GET", path, headers)
        headers.append((b"Content-Length", b"%d" % len(self.body)))
        return encode_request(self.method or b"POST", path, headers, self.body)


class HttpConnection:
    """Call `send`, then `read` until it returns nothing. Connects on demand; unusable after `close`.

    With a `resolver` it connects to nothing but the addresses that this gives, and never through a proxy, which would
    look a name up again.
    """

    def __init__(self, idle_timeout_s: float, context: ContextSource, resolver: Resolver | None = None) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._context = context
        self._resolver = resolver
        self._protocol: HttpProtocol | None = None
        self._origin: tuple[str, str, int] | None = None
        self._proxy: HttpTarget | None = None
        self._idle_since = 0.0
        self.is_closed: bool = False

    @property
    def is_reusable(self) -> bool:
        """After a response: whether another request may follow on the same socket."""
        return self._protocol is not None and self._protocol.is_reusable

    async def send(self, request: HttpRequest, *, resend: bool = True) -> ResponseHead:
        """Raises what is in `http_errors`; `HttpUnusable` for a bad proxy. `resend` is for what may be done twice: a
        server that dies while it does it looks the same as one that has closed an idle socket."""
        if self._protocol is not None and not (self._protocol.is_open and self._origin == request.target.origin):
            self._drop()
        if self._protocol is not None:
            try:
                return await self._send(self._protocol, request)
            except ConnectionLost as error:
                # The server may have closed an idle socket before it saw the request: only a fresh one can tell.
                if error.began or self.is_closed or not resend:
                    raise
                self._drop()
        return await self._send(await self._connect(request.target), request)

    async def read(self) -> bytes:
        """The next bytes of the body, without waiting if some are there; empty at the end."""
        if self._protocol is None:
            raise ConnectionLost(began=False)
        return await self._protocol.read()

    def mark_idle(self) -> None:
        """Called when it goes back to the pool."""
        self._idle_since = asyncio.get_running_loop().time()
        if self._protocol is not None:
            self._protocol.discard_response()

    def is_usable(self) -> bool:
        """Whether an idle connection can be used again: never connected, or its socket is open and not too old."""
        if self._protocol is None:
            return True
        return self._protocol.is_open and self.expires_in > 0

    @property
    def expires_in(self) -> float:
        """Seconds until an idle connection is too old to keep."""
        return self._idle_since + KEEP_ALIVE_S - asyncio.get_running_loop().time()

    def close(self) -> None:
        """Immediately; a task that is waiting in here gets an error."""
        self.is_closed = True
        if self._protocol is not None:
            self._protocol.close()

    async def wait_closed(self) -> None:
        if self._protocol is not None:
            await self._protocol.wait_closed()

    def _drop(self) -> None:
        if self._protocol is not None:
            self._protocol.close()
            self._protocol = None

    async def _send(self, protocol: HttpProtocol, request: HttpRequest) -> ResponseHead:
        protocol.send(request.encode(self._proxy))
        return await protocol.read_head()

    # --- connecting --------------------------------------------------------------------------------------------------

    async def _connect(self, target: HttpTarget) -> HttpProtocol:
        by_proxy = self._resolver is None and may_be_set()
        self._proxy = await asyncio.to_thread(proxy_for, target) if by_proxy else None
        self._origin = target.origin
        # Set before connecting, so that `close` aborts an attempt too.
        protocol = self._protocol = HttpProtocol(self._idle_timeout_s)
        try:
            async with asyncio.timeout(CONNECT_S):
                dialed = self._proxy or target
                _, host, port = dialed.origin
                context = await self._context() if dialed.scheme == "https" else None
                loop = asyncio.get_running_loop()
                if self._resolver is not None:
                    sock = await _connected(await self._resolver(host, port), port)
                    try:
                        name = host if context is not None else None
                        await loop.create_connection(lambda: protocol, sock=sock, ssl=context, server_hostname=name)
                    except BaseException:
                        sock.close()
                        raise
                # An IP address has no alternatives to race, and uvloop does not know the option.
                elif isinstance(loop, asyncio.BaseEventLoop) and not (
                    ":" in host or host.rpartition(".")[2].isdecimal()
                ):
                    await loop.create_connection(
                        lambda: protocol, host, port, ssl=context, happy_eyeballs_delay=NEXT_ADDRESS_S
                    )
                else:
                    await loop.create_connection(lambda: protocol, host, port, ssl=context)
                if self._proxy is not None and target.scheme == "https":
                    await self._open_tunnel(protocol, self._proxy, target)
        except OSError as error:
            self._drop()
            raise ConnectFailed(
                connect_failure_of(error), proxy=self._proxy, tls_problem=tls_problem_of(error)
            ) from None
        except BaseException:
            self._drop()
            raise
        if self.is_closed:
            protocol.close()
        return protocol

    async def _open_tunnel(self, protocol: HttpProtocol, proxy: HttpTarget, target: HttpTarget) -> None:
        """Open a tunnel through the proxy with CONNECT, and run TLS inside it."""
        headers = [(b"Host", target.tunnel), (b"Accept", b"*/*")]
        if proxy.basic is not None:
            headers.append((b"Proxy-Authorization", proxy.basic))
        protocol.send(encode_request(b"CONNECT", target.tunnel, headers), tunnel=True)
        head = await protocol.read_head()
        if not 200 <= head.status < 300:
            raise ProxyRefused(head.status)
        context = await self._context()
        loop = asyncio.get_running_loop()
        inner = await loop.start_tls(protocol.transport, protocol, context, server_hostname=target.host)
        if inner is None:  # the connection was lost meanwhile
            raise ConnectionLost(began=False)
        protocol.take_transport(inner)


async def _connected(addresses: list[str], port: int) -> socket.socket:
    """A socket that is connected to the first of the addresses that answers: they are numbers, nothing is looked up."""
    loop, problem = asyncio.get_running_loop(), OSError("no address")
    for address in addresses:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(PER_ADDRESS_S):
                await loop.sock_connect(sock, (address, port))
            return sock
        except OSError as error:  # a TimeoutError too
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
    raise problem


# --- the pool ---------------------------------------------------------------------------------------------------------


class PoolStats(Struct, frozen=True):
    busy: int
    idle: int


class HttpPool:
    """Pair each `acquire` with a `release`. `close` also aborts connections in use, and is idempotent."""

    def __init__(
        self,
        idle_timeout_s: float,
        *,
        max_connections: int = MAX_CONNECTIONS,
        max_idle: int = MAX_IDLE,
        resolver: Resolver | None = None,
    ) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._resolver = resolver
        self._max_idle = max_idle
        self._free = asyncio.Semaphore(max_connections)
        self._idle: list[HttpConnection] = []  # most recently used last; that one is reused first
        self._busy: set[HttpConnection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._context: ssl.SSLContext | None = None
        self._context_lock = asyncio.Lock()  # one task builds the context, the others wait
        self._closed = False

    async def acquire(self) -> HttpConnection:
        await self._free.acquire()
        if self._closed:
            self._free.release()
            raise _closed()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                break
            connection.close()
        else:
            connection = HttpConnection(self._idle_timeout_s, self._tls_context, self._resolver)
        self._busy.add(connection)
        return connection

    def release(self, connection: HttpConnection, *, reuse: bool) -> None:
        """Pass `reuse` only after a complete exchange: what a broken one left on the socket is unknown."""
        self._busy.discard(connection)
        self._free.release()
        if self._closed or not reuse:
            connection.close()
            return
        connection.mark_idle()
        self._idle.append(connection)
        if len(self._idle) > self._max_idle:
            self._idle.pop(0).close()
        self._watch()

    def stats(self) -> PoolStats:
        return PoolStats(busy=len(self._busy), idle=len(self._idle))

    async def warm_up(self) -> None:
        """Build the TLS context ahead of the first https request."""
        await self._tls_context()

    async def close(self) -> None:
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))

    def _watch(self) -> None:
        """One timer, for the connection that has been idle longest."""
        if self._sweeping is None and self._idle:
            self._sweeping = asyncio.get_running_loop().call_later(max(0.0, self._idle[0].expires_in), self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        while self._idle and self._idle[0].expires_in <= 0:
            self._idle.pop(0).close()
        self._watch()

    async def _tls_context(self) -> ssl.SSLContext:
        async with self._context_lock:
            if self._closed:
                raise _closed()
            if self._context is None:
                # In a thread: importing httpx2 and reading the CA bundle would stall other turns.
                self._context = await asyncio.to_thread(_make_context)
            return self._context


def _make_context() -> ssl.SSLContext:
    import httpx2  # only for https: slow to load

    context: ssl.SSLContext = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _closed() -> HttpUnusable:
    return HttpUnusable("the client is closed; make a new one")
