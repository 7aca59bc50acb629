"""`HttpConnection`: one request at a time to one server, over a socket that is kept open between requests; and
`HttpPool`, the connections to one provider.

A connection owns how its socket is opened (directly or through a proxy, with TLS or without), and the one retry that is
always safe: when a kept socket turns out to have been closed before the server answered. All other retries are the
caller's. The pool owns how many connections there are, when an idle one is closed, and the TLS context they share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from treadle.http.connect_failure import connect_failure_of, tls_problem_of
from treadle.http.http1 import ResponseHead, encode_request
from treadle.http.http_errors import ConnectFailed, ConnectionLost, HttpUnusable, ProxyRefused
from treadle.http.http_protocol import HttpProtocol
from treadle.http.proxies import may_be_set, proxy_for
from treadle.http.target import Target

if TYPE_CHECKING:
    import ssl

ContextSource: TypeAlias = Callable[[], Awaitable["ssl.SSLContext"]]

# Requests beyond this wait for a connection to be released.
MAX_CONNECTIONS: Final = 1024
MAX_IDLE: Final = 128

CONNECT_S: Final = 30.0
# Between the requests of a turn there may be a command that takes a while. After a longer one a new connection is not
# felt, and one that nobody uses is a descriptor, here and there.
KEEP_ALIVE_S: Final = 60.0
# A name with several addresses: the next is tried when the one before is silent for so long (RFC 8305).
NEXT_ADDRESS_S: Final = 0.25

# Computed from the body here, so the caller's are dropped.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class Request(Struct, frozen=True):
    """A POST, or a GET when there is no body. Header names are lower case."""

    target: Target
    headers: list[tuple[bytes, bytes]]
    body: bytes | None

    def encode(self, proxy: Target | None) -> bytes:
        """For the server, or for a proxy that forwards it (plain HTTP only: TLS goes through a tunnel)."""
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
            return encode_request(b"GET", path, headers)
        headers.append((b"Content-Length", b"%d" % len(self.body)))
        return encode_request(b"POST", path, headers, self.body)


class HttpConnection:
    """Call `send`, then `read` until it returns nothing. Connects on demand; unusable after `close`."""

    def __init__(self, idle_timeout_s: float, context: ContextSource) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._context = context
        self._protocol: HttpProtocol | None = None
        self._origin: tuple[str, str, int] | None = None
        self._proxy: Target | None = None
        self._idle_since = 0.0
        self.is_closed: bool = False

    @property
    def is_reusable(self) -> bool:
        """After a response: whether another request may follow on the same socket."""
        return self._protocol is not None and self._protocol.is_reusable

    async def send(self, request: Request) -> ResponseHead:
        """Raises what is in `http_errors`; `HttpUnusable` for a bad proxy."""
        self._drop_stale(request.target)
        if self._protocol is not None:
            try:
                return await self._send(self._protocol, request)
            except ConnectionLost as error:
                # The server may have closed an idle socket before it saw the request: only a fresh one can tell.
                if error.began or self.is_closed:
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

    def _drop_stale(self, target: Target) -> None:
        if self._protocol is not None and not (self._protocol.is_open and self._origin == target.origin):
            self._drop()

    def _drop(self) -> None:
        if self._protocol is not None:
            self._protocol.close()
            self._protocol = None

    async def _send(self, protocol: HttpProtocol, request: Request) -> ResponseHead:
        protocol.send(request.encode(self._proxy))
        return await protocol.read_head()

    # --- connecting --------------------------------------------------------------------------------------------------

    async def _connect(self, target: Target) -> HttpProtocol:
        self._proxy = await asyncio.to_thread(proxy_for, target) if may_be_set() else None
        self._origin = target.origin
        # Set before connecting, so that `close` aborts an attempt too.
        protocol = self._protocol = HttpProtocol(self._idle_timeout_s)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._dial(protocol, self._proxy or target)
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

    async def _dial(self, protocol: HttpProtocol, target: Target) -> None:
        _, host, port = target.origin
        context = await self._context() if target.scheme == "https" else None
        loop = asyncio.get_running_loop()
        # An IP address has no alternatives to race, and uvloop does not know the option.
        if isinstance(loop, asyncio.BaseEventLoop) and not _is_address(host):
            await loop.create_connection(lambda: protocol, host, port, ssl=context, happy_eyeballs_delay=NEXT_ADDRESS_S)
        else:
            await loop.create_connection(lambda: protocol, host, port, ssl=context)

    async def _open_tunnel(self, protocol: HttpProtocol, proxy: Target, target: Target) -> None:
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


def _is_address(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdecimal()


# --- the pool ---------------------------------------------------------------------------------------------------------


class PoolStats(Struct, frozen=True):
    busy: int
    idle: int


class HttpPool:
    """Pair each `acquire` with a `release`. `close` also aborts connections in use, and is idempotent."""

    def __init__(
        self, idle_timeout_s: float, *, max_connections: int = MAX_CONNECTIONS, max_idle: int = MAX_IDLE
    ) -> None:
        self._idle_timeout_s = idle_timeout_s
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
        connection = self._take_idle() or HttpConnection(self._idle_timeout_s, self._tls_context)
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

    def _take_idle(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        return None

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
