"""The server under test as a child process, and the connections to it: stdio, or WebSockets for several clients.

Owns the process and the moving of lines. Knows nothing of what the lines say.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from interop.programs import _child as child_process
from interop.replay.scenario import End, Places
from kit.exec_program import running
from kit.ports import free_port
from treadle.transport import Address, resolve_address

START_SECONDS: Final = 30.0
END_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
MAX_MESSAGE: Final = 64 * 1024 * 1024


class Receiver(Protocol):
    """Who is told what the server sent; `None` is the end of a connection."""

    def __call__(self, conn: str, text: str | None) -> None: ...


class Wire(Protocol):
    """The connections to one server."""

    log: Path

    async def send(self, conn: str, text: str) -> None: ...

    async def hang_up(self, conn: str) -> None: ...

    async def finish(self, end: End) -> None:
        """Leave the server in the way of the recording, and take all that it still says."""


@dataclass
class _Stdio:
    child: asyncio.subprocess.Process
    reader: asyncio.Task[None]
    log: Path

    async def send(self, conn: str, text: str) -> None:
        assert self.child.stdin is not None
        with suppress(ConnectionError):  # the reader tells that the server has ended
            self.child.stdin.write(text.encode() + b"\n")
            await self.child.stdin.drain()

    async def hang_up(self, conn: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()

    async def finish(self, end: End) -> None:
        if end == "kill":
            with suppress(ProcessLookupError):
                os.kill(self.child.pid, signal.SIGKILL)
        else:
            await self.hang_up("")
        async with asyncio.timeout(END_SECONDS):
            await self.reader


@dataclass
class _WebSockets:
    url: str
    home: Path
    receive: Receiver
    log: Path
    group: asyncio.TaskGroup
    open: dict[str, ClientConnection] = field(default_factory=dict)

    async def send(self, conn: str, text: str) -> None:
        if conn not in self.open:
            self.open[conn] = await self._enter()
            self.group.create_task(self._read(conn))
        with suppress(ConnectionClosed):
            await self.open[conn].send(text)

    async def _enter(self) -> ClientConnection:
        """With the token that our server leaves for its clients, as soon as it is there; the real one has none."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                token = resolve_address(Address.parse(self.url), None, {"TREADLE_HOME": str(self.home)}).token
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                try:
                    return await connect(
                        self.url, additional_headers=headers, proxy=None, compression=None, max_size=MAX_MESSAGE
                    )
                except InvalidStatus as error:
                    if error.response.status_code != 401:
                        raise
                    await asyncio.sleep(POLL_SECONDS)

    async def hang_up(self, conn: str) -> None:
        await self.open[conn].close()

    async def finish(self, end: End) -> None:
        for conn in list(self.open):
            await self.hang_up(conn)

    async def _read(self, conn: str) -> None:
        with suppress(ConnectionClosed):
            async for text in self.open[conn]:
                self.receive(conn, text if isinstance(text, str) else text.decode())
        self.receive(conn, None)


class Executor:
    """Our exec-server, for the threads of a scenario that work there."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._running: AbstractContextManager[object] | None = None

    def start(self) -> None:
        listen = self._places.tokens["<executor>"]
        variables = {"HOME": str(self._places.base), "WHERE": "x1"}
        self._running = running(self._places.elsewhere, "--listen", listen, env=variables)
        self._running.__enter__()

    def stop(self) -> None:
        if self._running is not None:
            self._running.__exit__(None, None, None)

    def restart(self) -> None:
        self.stop()
        self.start()


@contextmanager
def executor_of(places: Places) -> Iterator[Executor]:
    executor = Executor(places)
    try:
        executor.start()
        yield executor
    finally:
        executor.stop()


@asynccontextmanager
async def stdio_server(
    command: Sequence[str], places: Places, log: Path, receive: Receiver, variables: Mapping[str, str]
) -> AsyncIterator[Wire]:
    """Run `<command> --listen stdio://`."""
    whole = [*command, "--listen", "stdio://"]
    async with child_process(whole, places.user_home, places.workspace, log, **variables) as child:
        assert child.stdout is not None
        reader = asyncio.create_task(_read_lines(child.stdout, lambda text: receive("", text)))
        try:
            yield _Stdio(child, reader, log)
        finally:
            reader.cancel()
            await asyncio.wait([reader])


@asynccontextmanager
async def websocket_server(
    command: Sequence[str], places: Places, log: Path, receive: Receiver, variables: Mapping[str, str]
) -> AsyncIterator[Wire]:
    """Run `<command> --listen ws://127.0.0.1:PORT`; a connection is opened with its first message."""
    port = free_port()
    whole = [*command, "--listen", f"ws://127.0.0.1:{port}"]
    child = child_process(whole, places.user_home, places.workspace, log, **variables)
    async with child, asyncio.TaskGroup() as group:
        await _listening(port, log)
        wire = _WebSockets(f"ws://127.0.0.1:{port}", places.user_home / ".codex", receive, log, group)
        try:
            yield wire
        finally:
            await wire.finish("eof")


async def _read_lines(stream: asyncio.StreamReader, receive: Callable[[str | None], None]) -> None:
    while line := await stream.readline():
        receive(line.decode())
    receive(None)


async def _listening(port: int, log: Path) -> None:
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    await asyncio.sleep(POLL_SECONDS)
                    continue
                writer.close()
                return
    except TimeoutError:
        raise AssertionError(f"the server did not listen within {START_SECONDS} s; it said:\n{_tail(log)}") from None


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]
