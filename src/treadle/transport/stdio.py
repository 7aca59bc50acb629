"""Channels of JSON lines over pipes: our own standard input and output, or those of a child.

`LineFramer`, sans I/O, has one message per line, LF or CRLF, and skips blank lines.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from collections.abc import Sequence
from typing import IO, cast

from treadle.errors import ChannelClosed
from treadle.transport.stream import StreamChannel

MAX_LINE = 64 << 20
# A child whose stdin is closed has this long to end before it is killed.
CHILD_GRACE_S = 5.0


class LineFramer:
    """The framing of lines, with the interface of `WebSocketFramer`: bytes in, messages out."""

    def __init__(self, *, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._line = bytearray()  # the one that has not ended yet
        self.outgoing: list[bytes] = []
        self.ended: bool = False
        self.broken: bool = False
        self.end_reason: str = ""

    def receive(self, data: bytes) -> list[bytes]:
        if self.ended:
            return []
        *lines, rest = data.split(b"\n")
        if lines and self._line:
            self._line += lines[0]
            lines[0] = bytes(self._line)
            self._line.clear()
        self._line += rest
        messages: list[bytes] = []
        for line in lines:
            if not self._fits(line):
                return messages
            message = line.strip(b"\r \t")
            if message:
                messages.append(message)
        self._fits(self._line)
        return messages

    def _fits(self, line: bytes | bytearray) -> bool:
        if len(line) > self._max_line:
            self.ended = self.broken = True
            self.end_reason = f"a line is over the limit of {self._max_line} bytes"
            self._line.clear()
        return not self.ended

    def rest(self) -> bytes:
        """Take what came after the last line end."""
        rest = bytes(self._line).strip(b"\r \t")
        self._line.clear()
        return rest

    def receive_eof(self) -> None:
        if not self.ended:
            self.ended = True
            self.end_reason = "end of input"

    def message(self, payload: bytes) -> list[bytes]:
        return [payload, b"\n"]

    def ping(self) -> list[bytes]:
        return []

    def close(self) -> list[bytes]:
        return []


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
    """Whether an event loop can wait for it: some end the program when given a plain file, and none can wait for
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
