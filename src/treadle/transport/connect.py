"""Connecting: from an address, or a command line that speaks on its stdio, to a `Channel`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence

from treadle.errors import ChannelClosed
from treadle.transport.address import Address
from treadle.transport.handshake import BadRequest, Upgrade, split_head
from treadle.transport.lines import LineFramer
from treadle.transport.listen import set_nodelay
from treadle.transport.stream import StreamChannel
from treadle.transport.websocket import WebSocketFramer

# A child that was told to end (its stdin is closed) gets this long before it is killed.
CHILD_GRACE_S = 5.0


async def connect(address: Address, *, token: str | None = None, deadline_s: float = 10.0) -> StreamChannel:
    """Open a WebSocket channel; raises `ChannelClosed` with the reason."""
    upgrade = Upgrade.new(address.authority if address.host else "localhost", address.path, token)
    if address.scheme == "unix":
        upgrade = Upgrade.new("localhost", "/", token)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadline_s):
            if address.scheme == "unix":
                _, opening = await loop.create_unix_connection(lambda: _Opening(upgrade, str(address)), address.path)
            elif address.scheme in ("ws", "wss"):
                _, opening = await loop.create_connection(
                    lambda: _Opening(upgrade, str(address)),
                    address.host,
                    address.port,
                    ssl=True if address.scheme == "wss" else None,
                )
            else:
                raise ChannelClosed(f"cannot connect to {address}: use ws://, wss:// or unix://, or a command line")
            try:
                return await opening.opened
            except BaseException:
                opening.give_up()
                raise
    except TimeoutError:
        raise ChannelClosed(f"cannot connect to {address}: no answer within {deadline_s:g} s") from None
    except OSError as error:
        raise ChannelClosed(f"cannot connect to {address}: {error.strerror or error}") from None


class _Opening(asyncio.Protocol):
    """A connection until the server has agreed to the upgrade."""

    def __init__(self, upgrade: Upgrade, peer: str) -> None:
        self._upgrade = upgrade
        self._peer = peer
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[StreamChannel] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        set_nodelay(transport)
        transport.write(self._upgrade.request())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            split = split_head(self._buffer)
            if split is None:
                return
            self._upgrade.check(*split)
        except (BadRequest, ChannelClosed) as error:
            self._fail(ChannelClosed(f"{self._peer}: {error}"))
            return
        transport = self._transport
        assert transport is not None
        channel = StreamChannel(WebSocketFramer(client=True), self._peer, keepalive=True)
        transport.set_protocol(channel)
        channel.connection_made(transport)
        if split[1]:
            channel.data_received(split[1])
        if self.opened.done():  # the caller gave up in the meantime
            transport.abort()
        else:
            self.opened.set_result(channel)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ChannelClosed(f"{self._peer}: the connection ended during the handshake"))

    def give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: ChannelClosed) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
        self.give_up()


async def stdio_channel(reader_fd: int, writer_fd: int, peer: str) -> StreamChannel:
    """JSON lines over two file descriptors, which the channel then owns. They must be pipes, sockets or terminals."""
    channel = StreamChannel(LineFramer(), peer)
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_write_pipe(lambda: channel, os.fdopen(writer_fd, "wb", buffering=0))
        await loop.connect_read_pipe(lambda: channel, os.fdopen(reader_fd, "rb", buffering=0))
    except ValueError:
        raise ChannelClosed(f"{peer}: standard input and output must be pipes, sockets or terminals") from None
    return channel


class ChildChannel(StreamChannel):
    """JSON lines with a child process (`ssh host treadle exec-server --listen stdio://`)."""

    _child: subprocess.Popen[bytes]

    def _finish(self, reason: str) -> None:
        if not self.closed:
            asyncio.get_running_loop().run_in_executor(None, _reap, self._child)
        super()._finish(reason)


async def spawn(command: Sequence[str]) -> ChildChannel:
    """Start a program and speak with it; its standard error goes where ours goes."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise ChannelClosed(f"cannot start {command[0]}: {error.strerror or error}") from None
    assert child.stdin is not None
    assert child.stdout is not None
    channel = ChildChannel(LineFramer(), command[0])
    channel._child = child
    loop = asyncio.get_running_loop()
    await loop.connect_write_pipe(lambda: channel, child.stdin)
    await loop.connect_read_pipe(lambda: channel, child.stdout)
    return channel


def _reap(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(CHILD_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
