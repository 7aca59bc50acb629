"""Channels over pipes: our own standard input and output, or those of a child."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from collections.abc import Sequence
from typing import IO, cast

from treadle.errors import ChannelClosed
from treadle.transport.lines import LineFramer
from treadle.transport.stream import StreamChannel

# A child that was told to end (its stdin is closed) gets this long before it is killed.
CHILD_GRACE_S = 5.0


async def stdio_channel(reader_fd: int, writer_fd: int, peer: str) -> StreamChannel:
    """JSON lines over two file descriptors, which the channel then owns. They must be pipes, sockets or terminals."""
    if not (_can_wait(reader_fd) and _can_wait(writer_fd)):
        os.close(reader_fd)
        os.close(writer_fd)
        raise ChannelClosed(f"{peer}: standard input and output must be pipes, sockets or terminals")
    channel = StreamChannel(LineFramer(), peer)
    await _join(channel, os.fdopen(reader_fd, "rb", buffering=0), os.fdopen(writer_fd, "wb", buffering=0))
    return channel


def _can_wait(fd: int) -> bool:
    """Asked beforehand: some event loops end the program when they are given a plain file, and none can wait for
    `/dev/null`."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


async def spawn(command: Sequence[str]) -> StreamChannel:
    """Start a program and speak with it; its standard error goes where ours goes."""
    try:
        child = subprocess.Popen(  # noqa: ASYNC220 - returns as soon as the program is executed
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise ChannelClosed(f"cannot start {command[0]}: {error.strerror or error}") from None
    assert child.stdin is not None
    assert child.stdout is not None
    channel = _ChildChannel(child, command[0])
    await _join(channel, child.stdout, child.stdin)
    return channel


class _ChildChannel(StreamChannel):
    """Closing the channel also ends the child."""

    def __init__(self, child: subprocess.Popen[bytes], peer: str) -> None:
        super().__init__(LineFramer(), peer)
        self._child = child

    async def wait_closed(self) -> None:
        await super().wait_closed()
        await asyncio.get_running_loop().run_in_executor(None, self._reap)

    def _finish(self, reason: str) -> None:
        if not self.closed:
            # Also for an owner who does not wait.
            self._loop.run_in_executor(None, self._reap)
        super()._finish(reason)

    def _reap(self) -> None:
        try:
            self._child.wait(CHILD_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()


async def _join(channel: StreamChannel, reader: IO[bytes], writer: IO[bytes]) -> None:
    loop = asyncio.get_running_loop()
    await loop.connect_write_pipe(lambda: _WriteEnd(channel), writer)
    await loop.connect_read_pipe(lambda: _ReadEnd(channel), reader)


class _ReadEnd(asyncio.Protocol):
    def __init__(self, channel: StreamChannel) -> None:
        self._channel = channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._channel.read_from(cast(asyncio.ReadTransport, transport))

    def data_received(self, data: bytes) -> None:
        self._channel.data_received(data)

    def eof_received(self) -> bool:
        return self._channel.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._channel.reading_lost(error)


class _WriteEnd(asyncio.BaseProtocol):
    def __init__(self, channel: StreamChannel) -> None:
        self._channel = channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._channel.write_to(cast(asyncio.WriteTransport, transport))

    def pause_writing(self) -> None:
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        self._channel.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._channel.writing_lost(error)
