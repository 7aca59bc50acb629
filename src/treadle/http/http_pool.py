"""`HttpPool`: the connections to one provider, reused from request to request.

It owns how many there are, when an idle one is closed, and the TLS context they share. `HttpConnection` does the rest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treadle.http.http_connection import HttpConnection
from treadle.http.http_errors import HttpUnusable

if TYPE_CHECKING:
    import ssl

# Requests beyond this wait for a connection to be released.
MAX_CONNECTIONS: Final = 1024
MAX_IDLE: Final = 64


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
