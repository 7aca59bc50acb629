"""The raw client: the exec-server protocol with as little client as possible, the same for every server.

It stands on treadle's transport and typed messages, decodes every chunk, puts the events of a process in order and
keeps no output, only its size and checksum. Output takes a short cut past the JSON-RPC layer: it would otherwise be
limited by the client and not by the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder
from pybase64 import b64decode

from bench.client import CAT, STEP_SECONDS, Heard, check_exit
from bench.servers import BenchError
from treadle.errors import METHOD_NOT_FOUND, MalformedMessage
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
from treadle.transport.sockets import connect

_Notice = OutputNotice | ExitedNotice | ClosedNotice
_DECODERS: Final[dict[str, Decoder[_Notice]]] = {
    "process/output": Decoder(OutputNotice),
    "process/exited": Decoder(ExitedNotice),
    "process/closed": Decoder(ClosedNotice),
}


class _OutputFrame(Struct):
    """The whole message, so that the chunk is gone through once; both servers write the members in this order."""

    params: OutputNotice


_OUTPUT_START: Final = b'{"method":"process/output",'
_OUTPUT_FRAMES: Final = Decoder(_OutputFrame)


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
            self.heard.add(b64decode(notice.chunk, validate=True))
            if self._output is not None and not self._output.done():
                self._output.set_result(None)
        elif isinstance(notice, ExitedNotice):
            self.exit_code = notice.exit_code
        elif not self.closed.done():
            self.closed.set_result(None)


class RawClient:
    """One session. Made by `raw_session`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._link = RpcLink(channel, self)
        self._runs: dict[str, _Run] = {}
        self._processes = 0
        self._writes = 0

    async def initialize(self) -> None:
        self._channel.attach(self)
        await self._link.call("initialize", InitializeParams(client_name="treadle-bench"), InitializeResult)
        self._link.notify("initialized")

    async def run(self, argv: tuple[str, ...], *, tty: bool = False) -> Heard:
        process_id, run = await self._start(argv, tty=tty)
        await run.closed
        del self._runs[process_id]
        check_exit(argv, run.exit_code)
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

    async def _start(self, argv: tuple[str, ...], *, pipe_stdin: bool = False, tty: bool = False) -> tuple[str, _Run]:
        self._processes += 1
        process_id = f"p{self._processes}"
        run = self._runs[process_id] = _Run()
        params = StartParams(process_id=process_id, argv=argv, cwd="file:///", env={}, tty=tty, pipe_stdin=pipe_stdin)
        await self._link.call("process/start", params, StartResult)
        return process_id, run

    async def _write(self, process_id: str, data: bytes) -> None:
        self._writes += 1
        params = WriteParams(process_id=process_id, chunk=data, write_id=str(self._writes))
        answer = await self._link.call("process/write", params, WriteResult)
        if answer.status != "accepted":
            raise BenchError(f"a write was answered with {answer.status!r}")

    # --- Receiver ---

    def frame_received(self, frame: bytes) -> None:
        if frame.startswith(_OUTPUT_START):
            self._heard(_OUTPUT_FRAMES.decode(frame).params)
        else:
            self._link.frame_received(frame)

    def channel_closed(self, reason: str) -> None:
        self._link.channel_closed(reason)

    def channel_writable(self) -> None:
        self._link.channel_writable()

    # --- Handler ---

    def request_received(self, request: Request) -> None:
        self._link.fail(request.id, METHOD_NOT_FOUND, f"the benchmark does not implement {request.method}")

    def notification_received(self, notification: Notification) -> None:
        decoder = _DECODERS.get(notification.method)
        if decoder is not None:
            self._heard(decoder.decode(notification.params))

    def malformed_received(self, error: MalformedMessage) -> None:
        self._channel.abort()

    def link_closed(self, reason: str) -> None:
        for run in self._runs.values():
            run.fail(f"the connection ended: {reason}")

    def link_writable(self) -> None:
        """Nothing here waits for that."""

    # --- inside ---

    def _heard(self, notice: _Notice) -> None:
        run = self._runs.get(notice.process_id)
        if run is not None:
            run.take(notice)


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
