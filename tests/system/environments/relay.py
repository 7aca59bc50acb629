"""A relay in front of an exec-server, whose connections a test can cut, hold back and refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class Relay:
    """Passes bytes between clients of the socket `path` and the server at `target`, both unix sockets."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self.refuses = False
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def cut(self) -> None:
        """End all connections at once."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_unix_connection(str(self._target))
        except OSError:  # the server is gone
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        with suppress(OSError):
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def relay(folder: Path, target: Path) -> AsyncIterator[Relay]:
    passing = Relay(folder / "relay", target)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await passing.serve(reader, writer)

    server = await asyncio.start_unix_server(serve, str(passing.path))
    try:
        yield passing
    finally:
        server.close()
        passing.cut()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
