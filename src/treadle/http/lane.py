"""A lane: a place for one request at a time to one server, with a connection that is kept between them.

It owns how a connection is made (directly, or by a proxy, with TLS or without) and when a request is repeated because
its connection had been closed meanwhile. Other repetitions, and how many lanes there are, are not its matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from treadle.http.distrust import distrust_of
from treadle.http.http1 import ResponseHead, encode_request
from treadle.http.no_way import Reason, reason_of
from treadle.http.proxies import may_be_set, proxy_for
from treadle.http.target import Target
from treadle.http.wire import HungUp, Wire

if TYPE_CHECKING:
    import ssl

ContextSource: TypeAlias = Callable[[], Awaitable["ssl.SSLContext"]]

CONNECT_S: Final = 30.0
# Between the requests of a turn there may be a command that takes a while. After a longer one a new connection is not
# felt, and one that nobody uses is a descriptor, here and there.
KEEP_ALIVE_S: Final = 60.0
# A name with several addresses: the next is tried when the one before is silent for so long (RFC 8305).
NEXT_ADDRESS_S: Final = 0.25

# How long the body is, is known here only.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class NoConnection(Exception):
    """There was no way to the server, or to the `proxy` on the way; `distrust` says why TLS did not let us."""

    def __init__(self, reason: Reason, *, proxy: Target | None = None, distrust: str | None = None) -> None:
        super().__init__("no connection")
        self.reason = reason
        self.proxy = proxy
        self.distrust = distrust


class ProxyRefused(Exception):
    """The proxy makes no tunnel."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class Request(Struct, frozen=True):
    """A POST, or without a body a GET. Names of `headers` are in lower case."""

    target: Target
    headers: list[tuple[bytes, bytes]]
    body: bytes | None

    def encode(self, proxy: Target | None) -> bytes:
        """For a server, or for a proxy that passes it on (with TLS it does not see it)."""
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


class Lane:
    """`ask`, then `read` until it gives nothing. It connects by itself; after `close` it must not be used."""

    def __init__(self, idle_timeout_s: float, context: ContextSource) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._context = context
        self._wire: Wire | None = None
        self._origin: tuple[str, str, int] | None = None
        self._proxy: Target | None = None
        self._idle_since = 0.0
        self.is_closed: bool = False

    @property
    def is_reusable(self) -> bool:
        """After a response: whether the connection can carry another."""
        return self._wire is not None and self._wire.is_reusable

    async def ask(self, request: Request) -> ResponseHead:
        """Raises `NoConnection`, `ProxyRefused`, `Silence`, `HungUp`, `NotHttp`, or `HttpUnusable` for a bad proxy."""
        self._drop_stale(request.target)
        if self._wire is not None:
            try:
                return await self._ask(self._wire, request)
            except HungUp as error:
                # The server may have closed it before it saw the request; on a new connection we would know.
                if error.began or self.is_closed:
                    raise
                self._drop()
        return await self._ask(await self._connect(request.target), request)

    async def read(self) -> bytes:
        """The next bytes of the body, without waiting when there are some; none at the end."""
        if self._wire is None:
            raise HungUp(began=False)
        return await self._wire.read()

    def rest(self) -> None:
        """It will not be used for a while."""
        self._idle_since = asyncio.get_running_loop().time()
        if self._wire is not None:
            self._wire.rest()

    def is_fresh(self) -> bool:
        """Whether a lane that rested can be used: it never connected, or its connection lives and is not too old."""
        if self._wire is None:
            return True
        return self._wire.is_open and self.stale_in > 0

    @property
    def stale_in(self) -> float:
        """Seconds until a lane that rests has rested too long."""
        return self._idle_since + KEEP_ALIVE_S - asyncio.get_running_loop().time()

    def close(self) -> None:
        """At once, and for whoever waits inside too."""
        self.is_closed = True
        if self._wire is not None:
            self._wire.close()

    async def wait_closed(self) -> None:
        if self._wire is not None:
            await self._wire.wait_closed()

    def _drop_stale(self, target: Target) -> None:
        if self._wire is not None and not (self._wire.is_open and self._origin == target.origin):
            self._drop()

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def _ask(self, wire: Wire, request: Request) -> ResponseHead:
        wire.send(request.encode(self._proxy))
        return await wire.read_head()

    # --- connecting --------------------------------------------------------------------------------------------------

    async def _connect(self, target: Target) -> Wire:
        self._proxy = await asyncio.to_thread(proxy_for, target) if may_be_set() else None
        self._origin = target.origin
        # Known from the start, so that `close` ends it too.
        wire = self._wire = Wire(self._idle_timeout_s)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._dial(wire, self._proxy or target)
                if self._proxy is not None and target.scheme == "https":
                    await self._dig(wire, self._proxy, target)
        except OSError as error:
            self._drop()
            raise NoConnection(reason_of(error), proxy=self._proxy, distrust=distrust_of(error)) from None
        except BaseException:
            self._drop()
            raise
        if self.is_closed:
            wire.close()
        return wire

    async def _dial(self, wire: Wire, target: Target) -> None:
        _, host, port = target.origin
        context = await self._context() if target.scheme == "https" else None
        loop = asyncio.get_running_loop()
        # An address has no alternatives, and uvloop does not know the option.
        if isinstance(loop, asyncio.BaseEventLoop) and not _is_address(host):
            await loop.create_connection(lambda: wire, host, port, ssl=context, happy_eyeballs_delay=NEXT_ADDRESS_S)
        else:
            await loop.create_connection(lambda: wire, host, port, ssl=context)

    async def _dig(self, wire: Wire, proxy: Target, target: Target) -> None:
        """A tunnel through the proxy, and TLS in it."""
        headers = [(b"Host", target.tunnel), (b"Accept", b"*/*")]
        if proxy.basic is not None:
            headers.append((b"Proxy-Authorization", proxy.basic))
        wire.send(encode_request(b"CONNECT", target.tunnel, headers), tunnel=True)
        head = await wire.read_head()
        if not 200 <= head.status < 300:
            raise ProxyRefused(head.status)
        context = await self._context()
        loop = asyncio.get_running_loop()
        inner = await loop.start_tls(wire.transport, wire, context, server_hostname=target.host)
        if inner is None:  # the connection was lost meanwhile
            raise HungUp(began=False)
        wire.take_transport(inner)


def _is_address(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdecimal()
