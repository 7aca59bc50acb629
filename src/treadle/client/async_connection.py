"""Connections to a server on an event loop: the standard streams of a program, a socket, or a
server in this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from treadle.client import connection
from treadle.client.codex_config import CodexConfig
from treadle.client.connection import Sink
from treadle.client.own_thread import run_on_own_thread
from treadle.client.sdk_errors import TransportClosedError
from treadle.errors import ChannelClosed
from treadle.transport.address import Address, AddressError

if TYPE_CHECKING:
    from treadle.client.local_server import LocalServer
    from treadle.client.server_child import DrainDeadline, ServerChild
    from treadle.transport import Channel

logger: logging.Logger = logging.getLogger(__name__)


class AsyncConnection(ABC):
    """Carries frames, open until `close` or until the sink was told that it ended."""

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """After the end it is dropped: the sink has been told."""

    @abstractmethod
    async def close(self) -> None:
        """End it, and what was started for it."""

    async def abandon(self) -> None:
        """The same when the loop that it was opened on has ended, and with it all but a program."""
        return


async def open_connection(config: CodexConfig, sink: Sink) -> AsyncConnection:
    """Connect as `config` says. Raises `TransportClosedError`, `FileNotFoundError` or `CodexError`."""
    config.check()
    if config.url is not None:
        return await _connect(config.url, config, sink)
    if config.codex_bin is not None or config.launch_args_override is not None:
        return await _start(config, sink)
    return LocalConnection(config, sink)


class LocalConnection(AsyncConnection):
    """Our own server, on this loop."""

    def __init__(self, config: CodexConfig, sink: Sink) -> None:
        from treadle.client.local_server import LocalServer  # only for a server in this process

        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._server: LocalServer = LocalServer(config, self._received)

    def _received(self, frame: bytes) -> None:
        self._sink.frames_received([frame])

    def send(self, frame: bytes) -> None:
        # On the next turn of the loop, as with a real road: whoever asks is not to be called back from inside.
        self._loop.call_soon(self._server.send, frame)

    async def close(self) -> None:
        await self._server.close()


class ChannelConnection(AsyncConnection):
    """A connection over a channel, and the program behind it if we started it."""

    def __init__(self, channel: Channel, sink: Sink, child: ServerChild | None = None) -> None:
        self._channel = channel
        self._sink = sink
        self._child = child
        self._closed = False
        self._ending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []  # of this step of the loop: together they cost less
        self._stuck: asyncio.TimerHandle | None = None
        self._exited = None if child is None else child.exit_fd()
        if self._exited is not None:
            self._loop.add_reader(self._exited, self._child_exited)
        channel.attach(self)

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def send(self, frame: bytes) -> None:
        self._channel.send(frame)
        if self._stuck is None and not self._channel.writable:
            self._stuck = self._loop.call_later(connection.WRITE_S, self._give_up)

    def _give_up(self) -> None:
        text = f"the server is stuck: it has read nothing for {connection.WRITE_S:.0f} s"
        self._sink.connection_ended(TransportClosedError(text))
        self._channel.abort()

    def frame_received(self, frame: bytes) -> None:
        if not self._frames:
            self._loop.call_soon(self._pass_on)
        self._frames.append(frame)

    def _pass_on(self) -> None:
        frames, self._frames = self._frames, []
        if frames:
            self._sink.frames_received(frames)

    def channel_writable(self) -> None:
        self._not_stuck()

    def _not_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _child_exited(self) -> None:
        """What it has written is in the pipe and is read first; but others may hold that pipe open."""
        from treadle.client.server_child import SILENCE_S, DrainDeadline  # only for a server that we start

        self._forget_exit()
        # Not at once, however long it was silent: its last words may not have been read.
        self._loop.call_later(SILENCE_S, self._end_when_silent, DrainDeadline(self._loop.time()))

    def _end_when_silent(self, last_words: DrainDeadline) -> None:
        if self._channel.closed:
            return
        left = last_words.left(self._loop.time(), self._channel.heard_at or 0.0)
        if left <= 0:
            self._channel.abort()
        else:
            self._loop.call_later(left, self._end_when_silent, last_words)

    def _forget_exit(self) -> None:
        if self._exited is not None:
            self._loop.remove_reader(self._exited)
            os.close(self._exited)
            self._exited = None

    def channel_closed(self, reason: str) -> None:
        self._pass_on()
        self._not_stuck()
        if self._child is None or self._closed:
            self._sink.connection_ended(TransportClosedError(f"{self._channel.peer}: {reason}"))
        elif self._channel.broken:
            self._sink.connection_ended(self._child.misbehaved(f"broke the framing: {reason}"))
        else:
            self._ending = self._loop.create_task(self._report(self._child))

    async def _report(self, child: ServerChild) -> None:
        """Its exit code and its last words take a moment to come through."""
        self._sink.connection_ended(await run_on_own_thread(child.failure, "has closed its standard output"))

    async def close(self) -> None:
        self._closed = True
        self._forget_exit()
        self._channel.close()
        if self._ending is not None:
            await self._ending
        if self._child is not None:
            await run_on_own_thread(_end, self._child)
        await self._channel.wait_closed()

    async def abandon(self) -> None:
        if self._child is not None:
            await run_on_own_thread(_end, self._child)


async def _connect(url: str, config: CodexConfig, sink: Sink) -> ChannelConnection:
    from treadle.transport.connect import connect  # only for a server with a URL: it loads websockets

    try:
        channel = await connect(Address.parse(url), token=config.token, environ={**os.environ, **(config.env or {})})
    except (ChannelClosed, AddressError) as error:
        raise TransportClosedError(str(error)) from None
    return ChannelConnection(channel, sink)


def _end(child: ServerChild) -> None:
    child.end()
    child.release()


async def _start(config: CodexConfig, sink: Sink) -> ChannelConnection:
    # Only for a server that we start.
    from treadle.client.server_child import ServerChild
    from treadle.transport.stdio import stdio_channel

    child = ServerChild(config)
    try:
        channel = await stdio_channel(os.dup(child.stdout_fd), os.dup(child.stdin_fd), child.command[0])
        child.give_streams()
    except BaseException:
        _end(child)
        raise
    return ChannelConnection(channel, sink, child)
