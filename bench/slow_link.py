"""A link on which everything arrives later: a relay on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_BLOCK: Final = 1 << 16


@contextmanager
def slow_link(port: int, delay_s: float) -> Iterator[int]:
    """A port that leads to another one of this machine; a byte takes `delay_s` in each direction, whatever the load."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="slow link", daemon=True)
    thread.start()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(lambda reader, writer: _relay(reader, writer, port, delay_s), "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, delay_s: float) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_pass(reader, back, delay_s), _pass(there, writer, delay_s))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(_BLOCK):
        loop.call_later(delay_s, writer.write, data)
    loop.call_later(delay_s, writer.close)
