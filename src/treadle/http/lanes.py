"""The lanes to one provider: a lane has one request at a time, and keeps its connection for the next.

It owns the lanes, how many there are, when one that nobody uses is closed, and the TLS settings that they share. How a
lane connects and speaks is its own matter.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treadle.http.http_errors import HttpUnusable
from treadle.http.lane import Lane

if TYPE_CHECKING:
    import ssl

# Further requests wait until one of these has ended.
MAX_LANES: Final = 1024
MAX_IDLE: Final = 64


class LaneStats(Struct, frozen=True):
    busy: int
    idle: int


class Lanes:
    """`acquire` and `release` come in pairs; `close` ends what is still in use too, and may be called again."""

    def __init__(self, idle_timeout_s: float, *, max_lanes: int = MAX_LANES, max_idle: int = MAX_IDLE) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._max_idle = max_idle
        self._free = asyncio.Semaphore(max_lanes)
        self._idle: list[Lane] = []  # the one used last is the last, and is used next
        self._busy: set[Lane] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._context: ssl.SSLContext | None = None
        self._loading = asyncio.Lock()  # guards the making of the context
        self._closed = False

    async def acquire(self) -> Lane:
        await self._free.acquire()
        if self._closed:
            self._free.release()
            raise _closed()
        lane = self._rested() or Lane(self._idle_timeout_s, self._load)
        self._busy.add(lane)
        return lane

    def release(self, lane: Lane, *, reuse: bool) -> None:
        """`reuse` only after an exchange that went to its end: what a broken one left behind is not known."""
        self._busy.discard(lane)
        self._free.release()
        if self._closed or not reuse:
            lane.close()
            return
        lane.rest()
        self._idle.append(lane)
        if len(self._idle) > self._max_idle:
            self._idle.pop(0).close()
        self._watch()

    def stats(self) -> LaneStats:
        return LaneStats(busy=len(self._busy), idle=len(self._idle))

    async def warm_up(self) -> None:
        """Make the TLS settings, which only https needs."""
        await self._load()

    async def close(self) -> None:
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        lanes = [*self._idle, *self._busy]
        self._idle.clear()
        for lane in lanes:
            lane.close()
        await asyncio.gather(*(lane.wait_closed() for lane in lanes))

    def _rested(self) -> Lane | None:
        while self._idle:
            lane = self._idle.pop()
            if lane.is_fresh():
                return lane
            lane.close()
        return None

    def _watch(self) -> None:
        """One timer, for the lane that has rested longest."""
        if self._sweeping is None and self._idle:
            self._sweeping = asyncio.get_running_loop().call_later(max(0.0, self._idle[0].stale_in), self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        while self._idle and self._idle[0].stale_in <= 0:
            self._idle.pop(0).close()
        self._watch()

    async def _load(self) -> ssl.SSLContext:
        async with self._loading:
            if self._closed:
                raise _closed()
            if self._context is None:
                # Loading httpx2 and reading the CA bundle takes long enough to be felt by other turns.
                self._context = await asyncio.to_thread(_make_context)
            return self._context


def _make_context() -> ssl.SSLContext:
    import httpx2

    context: ssl.SSLContext = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _closed() -> HttpUnusable:
    return HttpUnusable("the client is closed; make a new one")
