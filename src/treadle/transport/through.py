"""A WebSocket channel through a program: its standard input and output are a connection to a server that goes on
without it. `ssh` and `docker exec` are such programs.

The handshake, keepalives and probes pass through it to the server, so that both ends notice when the way between them
is gone, whatever the programs on it believe. What it says on its standard error is in the reason of a failure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from treadle.errors import ChannelClosed
from treadle.transport.channel import Channel
from treadle.transport.sockets import ClientOpening
from treadle.transport.stream import StreamChannel
from treadle.transport.websocket import Upgrade, WebSocketFramer

# A program whose input is closed has this long to end before it is killed.
GRACE_S: Final = 5.0
# What is remembered of its standard error: the last lines say why it failed.
MAX_COMPLAINT: Final = 2000
MAX_LINES: Final = 4
# A login on another machine, and the start of a server there.
OPEN_S: Final = 30.0
# Between two runs that do not connect, longer each time.
AGAIN_AFTER_S: Final = 0.5
MAX_AGAIN_AFTER_S: Final = 5.0


def opener(command: Sequence[str]) -> Callable[[], Awaitable[Channel]]:
    """Connects through a program, each time that it is called. One that has failed is not run again at once: each try
    may be a login on another machine."""
    failures = 0

    async def open_channel() -> Channel:
        nonlocal failures
        await asyncio.sleep(min(failures * AGAIN_AFTER_S, MAX_AGAIN_AFTER_S))
        failures += 1
        channel = await connect_through(command)
        failures = 0
        return channel

    return open_channel


async def connect_through(command: Sequence[str]) -> StreamChannel:
    """Run a program and shake hands with the server behind it. Raises `ChannelClosed` with the reason."""
    ours, its = socket.socketpair()
    ours.setblocking(False)
    try:
        child = subprocess.Popen(  # noqa: ASYNC220 - returns as soon as the program is executed
            command, stdin=its.fileno(), stdout=its.fileno(), stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        ours.close()
        raise ChannelClosed(f"cannot start {command[0]}: {error.strerror or error}") from None
    finally:
        its.close()
    program = _Program(child, command[0])
    upgrade = Upgrade.new("localhost", "/", None, "")
    try:
        async with asyncio.timeout(OPEN_S):
            _, opening = await asyncio.get_running_loop().create_connection(
                lambda: ClientOpening(upgrade, command[0], lambda: _ThroughChannel(program)), sock=ours
            )
            try:
                return await opening.opened
            except BaseException:
                opening.abort()
                raise
    except ChannelClosed as error:
        complaint = program.complaint()
        await program.end()
        raise ChannelClosed(f"{command[0]}: {complaint}" if complaint else str(error)) from None
    except TimeoutError:
        await program.end()
        raise ChannelClosed(f"{command[0]}: no answer within {OPEN_S:g} s") from None
    except BaseException:
        program.end()
        raise


def last_words(said: bytes) -> str:
    """The last lines of a program's standard error as one, without what a terminal would obey."""
    lines = [line.strip() for line in said[-MAX_COMPLAINT:].decode("utf-8", "replace").splitlines() if line.strip()]
    return "".join(letter for letter in "; ".join(lines[-MAX_LINES:]) if letter.isprintable())


class _Program:
    """The child, which ends when its input does, and the end of what it has complained about."""

    def __init__(self, child: subprocess.Popen[bytes], name: str) -> None:
        assert child.stderr is not None
        self.name = name
        self._child = child
        self._errors = child.stderr
        self._tail = b""
        self._ended: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._errors.fileno(), False)
        self._loop.add_reader(self._errors.fileno(), self._read)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._errors.fileno(), 1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self._errors.fileno())
                return
            self._tail = (self._tail + data)[-MAX_COMPLAINT:]

    def complaint(self) -> str:
        if not self._errors.closed:
            self._read()
        return last_words(self._tail)

    def end(self) -> asyncio.Future[None]:
        """Its input is closed: wait for its end, or kill it when that takes too long."""
        if self._ended is None:
            if not self._errors.closed:
                self._loop.remove_reader(self._errors.fileno())
                self._errors.close()
            self._ended = self._loop.run_in_executor(None, self._reap)
        return self._ended

    def _reap(self) -> None:
        try:
            self._child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()


class _ThroughChannel(StreamChannel):
    def __init__(self, program: _Program) -> None:
        super().__init__(WebSocketFramer(client=True), program.name, keepalive=True)
        self._program = program

    async def wait_closed(self) -> None:
        await super().wait_closed()
        await self._program.end()

    def _finish(self, reason: str) -> None:
        if not self.closed:
            complaint = self._program.complaint()
            self._program.end()  # also for an owner who does not wait
            reason = f"{reason}: {complaint}" if complaint else reason
        super()._finish(reason)
