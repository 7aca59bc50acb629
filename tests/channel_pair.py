"""Two ends of a channel for tests: who records what arrives, who accepts, and how each transport is opened."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from treadle.transport import Address, Channel, Listener, connect, memory_pair, stdio_channel
from treadle.transport.listen import listen

DEADLINE_S = 60
TRANSPORTS = ("memory", "websocket", "unix", "stdio")
# More than any transport may hold between two programs: its own mark, the kernel's buffers, a frame.
MAX_HELD = 24 << 20

Pair = tuple[Channel, Channel]


class Recorder:
    """Keeps what arrives, in order; `react` is called with each frame."""

    def __init__(self, react: Callable[[bytes], None] | None = None) -> None:
        self.frames: list[bytes] = []
        self.reasons: list[str] = []
        self.writable = 0
        self.log: list[str] = []
        self._react = react
        self._changed = asyncio.Event()

    def frame_received(self, frame: bytes) -> None:
        self.frames.append(frame)
        self._note("frame")
        if self._react is not None:
            self._react(frame)

    def channel_closed(self, reason: str) -> None:
        self.reasons.append(reason)
        self._note("closed")

    def channel_writable(self) -> None:
        self.writable += 1
        self._note("writable")

    def _note(self, what: str) -> None:
        self.log.append(what)
        self._changed.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def count(self, frames: int) -> list[bytes]:
        await self.until(lambda: len(self.frames) >= frames)
        return self.frames

    async def closed(self) -> None:
        await self.until(lambda: bool(self.reasons))


class Acceptor:
    """A listener and the channels that come in."""

    def __init__(self) -> None:
        self.channels: asyncio.Queue[Channel] = asyncio.Queue()
        self.listener: Listener | None = None

    async def open(self, url: str, *, token: str | None = None) -> Address:
        self.listener = await listen(Address.parse(url), self.channels.put_nowait, token=token)
        return Address.parse(self.listener.url)

    async def next(self) -> Channel:
        async with asyncio.timeout(DEADLINE_S):
            return await self.channels.get()

    async def close(self) -> None:
        if self.listener is not None:
            await self.listener.close()
        while not self.channels.empty():
            self.channels.get_nowait().abort()


async def open_pair(transport: str, acceptor: Acceptor, folder: Path) -> Pair:
    if transport == "memory":
        return memory_pair()
    if transport == "stdio":
        (read_one, write_one), (read_two, write_two) = os.pipe(), os.pipe()
        return await stdio_channel(read_one, write_two, "one"), await stdio_channel(read_two, write_one, "two")
    address = await acceptor.open("ws://127.0.0.1:0" if transport == "websocket" else f"unix://{folder}/s")
    client = await connect(address)
    return client, await acceptor.next()
