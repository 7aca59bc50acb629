"""Connections to a server on an event loop: the standard streams of a program, a socket, or `LocalServer`, our own
server in this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.client import connection
from treadle.client.codex_config import CodexConfig
from treadle.client.connection import Sink
from treadle.client.own_thread import run_on_own_thread
from treadle.client.sdk_errors import TransportClosedError, configuration_error
from treadle.errors import ChannelClosed
from treadle.own_python import pin_imports
from treadle.transport import Channel
from treadle.transport.address import Address, AddressError

if TYPE_CHECKING:
    from treadle.client.server_child import DrainDeadline, ServerChild

logger: logging.Logger = logging.getLogger(__name__)


class AsyncConnection(ABC):
    """Carries frames, until `close` or until the sink is notified that it ended."""

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Send a frame. After the end it is dropped: the sink knows of that."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection, and what was started for it."""

    async def abandon(self) -> None:
        """`close` when the loop of the connection has ended, and with it all but a program."""
        return


async def open_connection(config: CodexConfig, sink: Sink) -> AsyncConnection:
    """Connect as `config` says. Raises `TransportClosedError`, `FileNotFoundError` or `CodexError`."""
    config.check()
    pin_imports()  # what the server runs may write where this process looks for modules
    if config.url is not None:
        from treadle.transport.sockets import connect  # only for a server that listens

        environ = {**os.environ, **(config.env or {})}
        try:
            channel = await connect(
                Address.parse(config.url),
                token=config.token,
                ca_file=config.ca_file,
                cert_file=config.cert_file,
                key_file=config.key_file,
                environ=environ,
            )
        except (ChannelClosed, AddressError) as error:
            raise TransportClosedError(str(error)) from None
        return ChannelConnection(channel, sink)
    if config.codex_bin is not None or config.launch_args_override is not None:
        # Only for a server that we start.
        from treadle.client.server_child import ServerChild
        from treadle.transport.stdio import stdio_channel

        child = ServerChild(config)
        try:
            streams = await stdio_channel(os.dup(child.stdout_fd), os.dup(child.stdin_fd), child.command[0])
            child.give_streams()
        except BaseException:
            _end(child)
            raise
        return ChannelConnection(streams, sink, child)
    return AsyncLocalConnection(config, sink)


class AsyncLocalConnection(AsyncConnection):
    """Our own server, on this loop."""

    def __init__(self, config: CodexConfig, sink: Sink) -> None:
        self._loop = asyncio.get_running_loop()
        self.server: LocalServer = LocalServer(config, sink)

    def send(self, frame: bytes) -> None:
        # On the next turn of the loop, as over a pipe: the caller must not be called back from inside this call.
        self._loop.call_soon(self.server.send, frame)

    async def close(self) -> None:
        await self.server.close()


class LocalServer:
    """Our own server on the running event loop. What it sends goes to the sink on the loop's thread."""

    def __init__(self, config: CodexConfig, sink: Sink) -> None:
        # Only for a server in this process.
        from treadle.config import ConfigError
        from treadle.server import AppServer

        environ = {**os.environ, **config.env} if config.env else os.environ
        self.app_server: AppServer = AppServer(
            overrides=config.config_overrides, environ=environ, cwd=config.cwd, hooks=config.hooks
        )
        try:
            # Wrong settings of the caller's own are an error here, and not of the first thread.
            self.app_server.check_overrides()
        except ConfigError as error:
            raise configuration_error(error) from None
        self._frames = _StepFrames(sink)
        self._channel = DirectChannel(self._frames.add)
        self.app_server.accept(self._channel, must_not_lose=True)

    def send(self, frame: bytes) -> None:
        """Pass a frame to the server."""
        self._channel.deliver(frame)

    async def close(self) -> None:
        self._channel.close()
        self._frames.pass_on()
        await self.app_server.close()


class _StepFrames:
    """The frames of one step of the loop, for the sink: together they cost less."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []

    def add(self, frame: bytes) -> None:
        if not self._frames:
            self._loop.call_soon(self.pass_on)
        self._frames.append(frame)

    def pass_on(self) -> None:
        frames, self._frames = self._frames, []
        if frames:
            self._sink.frames_received(frames)


class DirectChannel(Channel):
    """The server's end of a connection in this process. The client's limits on unread events bound it.

    Args:
        receive: Called with each frame that the server sends, immediately.
    """

    writable = True
    pending = 0

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        super().__init__("client in this process")
        self._receive = receive

    def send(self, frame: bytes) -> None:
        if self._reason is None:
            self._frames_out += 1
            self._receive(frame)

    def pause(self) -> None:
        pass  # a client in this process has its own bounds

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("the connection was aborted")


class ChannelConnection(AsyncConnection):
    """A connection over a channel, and the program behind it if we started it."""

    def __init__(self, channel: Channel, sink: Sink, child: ServerChild | None = None) -> None:
        self._channel = channel
        self._sink = sink
        self._child = child
        self._closed = False
        self._ending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._frames = _StepFrames(sink)
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

            def end() -> None:
                text = f"the server is stuck: it has read nothing for {connection.WRITE_S:.0f} s"
                self._sink.connection_ended(TransportClosedError(text))
                self._channel.abort()

            self._stuck = self._loop.call_later(connection.WRITE_S, end)

    def frame_received(self, frame: bytes) -> None:
        self._frames.add(frame)

    def channel_writable(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _child_exited(self) -> None:
        """Read on until there is silence: the last words of the server are in the pipe, which others may hold open."""
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
        self._frames.pass_on()
        self.channel_writable()  # nobody waits for that any more
        if self._child is None or self._closed:
            self._sink.connection_ended(TransportClosedError(f"{self._channel.peer}: {reason}"))
        elif self._channel.broken:
            self._sink.connection_ended(self._child.misbehaved(f"broke the framing: {reason}"))
        else:
            self._ending = self._loop.create_task(self._report(self._child))

    async def _report(self, child: ServerChild) -> None:
        """Report the end of a server: its exit code and its last words take a moment to come through."""
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


def _end(child: ServerChild) -> None:
    child.end()
    child.release()
