"""The two clients of the benchmark behind one interface, the same for every server.

`raw_session` is the exec-server protocol with as little client as possible: treadle's transport and typed messages.
`public_session` is what users have, `treadle.execution.Environment`. Both decode every chunk, in order, and keep no
output, only its size and checksum.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from zlib import crc32

from msgspec.json import Decoder

from bench.servers import BenchError
from treadle.errors import METHOD_NOT_FOUND, MalformedMessage
from treadle.execution import Environment, Evicted, ExecParams, Failed, Output, Process
from treadle.protocol.exec import (
    ClosedNotice,
    ExitedNotice,
    InitializeParams,
    InitializeResult,
    OutputNotice,
    StartParams,
    StartResult,
    WriteParams,
    WriteResult,
)
from treadle.rpc import Notification, Request
from treadle.transport import Address, Channel, RpcLink
from treadle.transport.connect import connect

# No single step takes this long on a machine that can be measured at all.
STEP_SECONDS: Final = 300.0
CAT: Final = ("/bin/cat",)

_Notice = OutputNotice | ExitedNotice | ClosedNotice
_DECODERS: Final[dict[str, Decoder[_Notice]]] = {
    "process/output": Decoder(OutputNotice),
    "process/exited": Decoder(ExitedNotice),
    "process/closed": Decoder(ClosedNotice),
}


@dataclass(slots=True)
class Heard:
    """The output of a command."""

    size: int = 0
    checksum: int = 0

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.checksum = crc32(chunk, self.checksum)


class Client(Protocol):
    """A session with a server."""

    async def run(self, argv: tuple[str, ...]) -> Heard:
        """Run a command to its close; it must exit with 0."""

    async def start(self, argv: tuple[str, ...]) -> None:
        """Start a command and leave it."""

    async def start_echo(self) -> Callable[[bytes], Awaitable[None]]:
        """Start `cat`; the value sends it bytes and returns when they are back."""


Session = Callable[[str], AbstractAsyncContextManager[Client]]


class _Run:
    """What has been heard of one process."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.exit_code: int | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._output: asyncio.Future[None] | None = None
        self._next_seq = 1
        self._held: dict[int, _Notice] = {}

    def take(self, notice: _Notice) -> None:
        """The real server may push out of order; the checksum needs the order."""
        self._held[notice.seq] = notice
        while (ready := self._held.pop(self._next_seq, None)) is not None:
            self._next_seq += 1
            self._apply(ready)

    async def output_of(self, size: int) -> None:
        """Wait until that many bytes have come in all."""
        while self.heard.size < size:
            self._output = asyncio.get_running_loop().create_future()
            await self._output

    def fail(self, reason: str) -> None:
        for waiter in (self.closed, self._output):
            if waiter is not None and not waiter.done():
                waiter.set_exception(BenchError(reason))
                waiter.exception()  # nobody may be waiting for this one

    def _apply(self, notice: _Notice) -> None:
        if isinstance(notice, OutputNotice):
            self.heard.add(notice.chunk)
            if self._output is not None and not self._output.done():
                self._output.set_result(None)
        elif isinstance(notice, ExitedNotice):
            self.exit_code = notice.exit_code
        elif not self.closed.done():
            self.closed.set_result(None)


class RawClient:
    """One session. Made by `raw_session`."""

    def __init__(self, channel: Channel) -> None:
        self._link = RpcLink(channel, self)
        self._runs: dict[str, _Run] = {}
        self._processes = 0
        self._writes = 0

    async def initialize(self) -> None:
        self._link.start()
        await self._link.call("initialize", InitializeParams(client_name="treadle-bench"), InitializeResult)
        self._link.notify("initialized")

    async def run(self, argv: tuple[str, ...]) -> Heard:
        process_id, run = await self._start(argv)
        await run.closed
        del self._runs[process_id]
        _check_exit(argv, run.exit_code)
        return run.heard

    async def start(self, argv: tuple[str, ...]) -> None:
        await self._start(argv)

    async def start_echo(self) -> Callable[[bytes], Awaitable[None]]:
        process_id, run = await self._start(CAT, pipe_stdin=True)

        async def echo(data: bytes) -> None:
            size = run.heard.size + len(data)
            await self._write(process_id, data)
            await run.output_of(size)

        return echo

    async def _start(self, argv: tuple[str, ...], *, pipe_stdin: bool = False) -> tuple[str, _Run]:
        self._processes += 1
        process_id = f"p{self._processes}"
        run = self._runs[process_id] = _Run()
        params = StartParams(process_id=process_id, argv=argv, cwd="file:///", env={}, tty=False, pipe_stdin=pipe_stdin)
        await self._link.call("process/start", params, StartResult)
        return process_id, run

    async def _write(self, process_id: str, data: bytes) -> None:
        self._writes += 1
        params = WriteParams(process_id=process_id, chunk=data, write_id=str(self._writes))
        answer = await self._link.call("process/write", params, WriteResult)
        if answer.status != "accepted":
            raise BenchError(f"a write was answered with {answer.status!r}")

    # --- Handler ---

    def request_received(self, request: Request) -> None:
        self._link.fail(request.id, METHOD_NOT_FOUND, f"the benchmark does not implement {request.method}")

    def notification_received(self, notification: Notification) -> None:
        decoder = _DECODERS.get(notification.method)
        if decoder is None:
            return
        notice = decoder.decode(notification.params)
        run = self._runs.get(notice.process_id)
        if run is not None:
            run.take(notice)

    def malformed_received(self, error: MalformedMessage) -> None:
        self._link.channel.abort()

    def link_closed(self, reason: str) -> None:
        for run in self._runs.values():
            run.fail(f"the connection ended: {reason}")

    def link_writable(self) -> None:
        """Nothing here waits for that."""


class PublicClient:
    """`Environment` as a `Client`. Made by `public_session`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._processes = 0

    async def run(self, argv: tuple[str, ...]) -> Heard:
        process = await self._start(argv)
        heard = Heard()
        async for event in process.events():
            if isinstance(event, Output):
                heard.add(event.chunk)
            elif isinstance(event, Evicted | Failed):
                raise BenchError(f"{argv}: output was lost: {event}")
        _check_exit(argv, process.exit_code)
        return heard

    async def start(self, argv: tuple[str, ...]) -> None:
        await self._start(argv)

    async def start_echo(self) -> Callable[[bytes], Awaitable[None]]:
        process = await self._start(CAT, pipe_stdin=True)
        events = process.events()

        async def echo(data: bytes) -> None:
            await process.write(data)
            left = len(data)
            while left > 0:
                event = await anext(events)
                if not isinstance(event, Output):
                    raise BenchError(f"cat ended: {event}")
                left -= len(event.chunk)

        return echo

    async def _start(self, argv: tuple[str, ...], *, pipe_stdin: bool = False) -> Process:
        self._processes += 1
        process_id = f"p{self._processes}"
        return await self._environment.start(
            ExecParams(process_id=process_id, argv=argv, cwd="/", env={}, pipe_stdin=pipe_stdin)
        )


def _check_exit(argv: tuple[str, ...], exit_code: int | None) -> None:
    if exit_code != 0:
        raise BenchError(f"{argv} ended with exit code {exit_code}")


@asynccontextmanager
async def raw_session(url: str) -> AsyncIterator[RawClient]:
    """A connection that has been initialized; everything done with it has a deadline."""
    async with asyncio.timeout(STEP_SECONDS):
        channel = await connect(Address.parse(url))
        try:
            client = RawClient(channel)
            await client.initialize()
            yield client
        finally:
            channel.abort()


@asynccontextmanager
async def public_session(url: str) -> AsyncIterator[PublicClient]:
    async with asyncio.timeout(STEP_SECONDS), await Environment.connect(url, recovery_s=0) as environment:
        yield PublicClient(environment)
