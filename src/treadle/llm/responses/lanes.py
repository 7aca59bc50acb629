"""HTTP connections to one provider, kept alive: a lane is an httpx2 client that has one request at a time.

Many small clients, not one large, because the pool inside a client looks at all its connections for every request: at
a hundred turns at once that costs more than the rest of the request. It owns the clients and how many there are. httpx2
is loaded by the first request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treadle.llm.model import ModelError

if TYPE_CHECKING:
    import ssl

    import httpx2

# Further requests wait until one of these has ended.
MAX_LANES: Final = 1024
MAX_IDLE: Final = 128
CONNECT_S: Final = 30.0
# Between the requests of a turn there may be a command that takes minutes.
KEEP_ALIVE_S: Final = 300.0


class LaneStats(Struct, frozen=True):
    busy: int
    idle: int


class Lanes:
    """`acquire` and `release` come in pairs; `close` ends what is still in use too, and may be called again."""

    def __init__(self, idle_timeout_s: float, *, max_lanes: int = MAX_LANES, max_idle: int = MAX_IDLE) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._max_idle = max_idle
        self._free = asyncio.Semaphore(max_lanes)
        self._idle: list[httpx2.AsyncClient] = []  # the one used last is the last, and is used next
        self._busy: set[httpx2.AsyncClient] = set()
        self._context: ssl.SSLContext | None = None
        self._loading = asyncio.Lock()  # guards the making of the context
        self._closed = False

    async def acquire(self) -> httpx2.AsyncClient:
        await self._free.acquire()
        try:
            lane = self._idle.pop() if self._idle else _make_lane(await self._load(), self._idle_timeout_s)
            self._check()
        except BaseException:
            self._free.release()
            raise
        self._busy.add(lane)
        return lane

    async def release(self, lane: httpx2.AsyncClient, *, reuse: bool) -> None:
        """`reuse` only after an exchange that went to its end: what a broken one left in the client is not known."""
        self._busy.discard(lane)
        self._free.release()
        if self._closed or not reuse:
            await lane.aclose()
            return
        self._idle.append(lane)
        if len(self._idle) > self._max_idle:
            await self._idle.pop(0).aclose()

    def stats(self) -> LaneStats:
        return LaneStats(busy=len(self._busy), idle=len(self._idle))

    async def warm_up(self) -> None:
        await self._load()

    async def close(self) -> None:
        self._closed = True
        lanes = [*self._idle, *self._busy]
        self._idle.clear()
        for lane in lanes:
            await lane.aclose()

    async def _load(self) -> ssl.SSLContext:
        async with self._loading:
            self._check()
            if self._context is None:
                # Importing httpx2 and reading the CA bundle takes long enough to be felt by other turns.
                self._context = await asyncio.to_thread(_make_context)
            return self._context

    def _check(self) -> None:
        if self._closed:
            raise ModelError("the model client is closed; make a new one")


def _make_context() -> ssl.SSLContext:
    import httpx2

    context: ssl.SSLContext = httpx2.create_ssl_context()
    return context


def _make_lane(context: ssl.SSLContext, idle_timeout_s: float) -> httpx2.AsyncClient:
    import httpx2

    return httpx2.AsyncClient(
        verify=context,
        timeout=httpx2.Timeout(idle_timeout_s, connect=CONNECT_S, pool=CONNECT_S),
        limits=httpx2.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE_S),
        # A redirect could carry the key to another host.
        follow_redirects=False,
    )
