"""`LocalServer`: our own server in this process, and the channel to it. It lives on the running event loop."""

from __future__ import annotations

import os
from collections.abc import Callable

from treadle.client.codex_config import CodexConfig
from treadle.client.sdk_errors import rpc_error
from treadle.server import AppServer
from treadle.server.client_base import wire_error
from treadle.transport import Channel


class LocalServer:
    """`on_frame` is called with what the server sends, immediately, on the loop's thread."""

    def __init__(self, config: CodexConfig, on_frame: Callable[[bytes], None]) -> None:
        environ = {**os.environ, **config.env} if config.env else os.environ
        self._server = AppServer(overrides=config.config_overrides, environ=environ, cwd=config.cwd)
        _check(self._server)
        self._channel = _DirectChannel(on_frame)
        self._server.accept(self._channel, must_not_lose=True)

    def send(self, frame: bytes) -> None:
        """Something for the server."""
        self._channel.deliver(frame)

    async def close(self) -> None:
        self._channel.close()
        await self._server.close()


def _check(server: AppServer) -> None:
    """Settings of the caller's own that are wrong are told to the caller, and not with the first thread."""
    from treadle.config import ConfigError  # loaded with the settings

    try:
        server.check_overrides()
    except ConfigError as error:
        answer = wire_error(error, "initialize")
        raise rpc_error(answer.code, answer.message, answer.data) from None


class _DirectChannel(Channel):
    """The server's end: what it sends is delivered immediately. The client's limits on unread events bound it."""

    def __init__(self, on_frame: Callable[[bytes], None]) -> None:
        super().__init__("client in this process")
        self._on_frame = on_frame

    @property
    def writable(self) -> bool:
        return True

    @property
    def pending(self) -> int:
        return 0

    def send(self, frame: bytes) -> None:
        if not self.closed:
            self._frames_out += 1
            self._on_frame(frame)

    def deliver(self, frame: bytes) -> None:
        self._deliver(frame)

    def pause(self) -> None:
        pass  # a client in this process has its own bounds

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("the connection was aborted")

    def _begin(self) -> None:
        pass
