"""`ExecServer`: connections in, sessions kept, everything ended at the close."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from typing import Any

from treadle.execution.server.exec_connection import Connection
from treadle.execution.server.exec_sessions import DETACHED_S, Sessions
from treadle.execution.supervisor import Supervisor
from treadle.transport import Channel

logger: logging.Logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024


class ExecServer:
    """Serves any number of channels. Use it as an async context manager."""

    def __init__(self, *, detached_s: float = DETACHED_S) -> None:
        self._supervisor = Supervisor()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Channel] = set()
        self._closing = False
        self._numbers = itertools.count(1)
        self.sessions: Sessions = Sessions(self._supervisor, self._spawn, detached_s=detached_s)

    async def __aenter__(self) -> ExecServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def prepare(self) -> None:
        """Have the helper process ready before the first command asks for it."""
        self._supervisor.start()

    def accept(self, channel: Channel) -> None:
        """Serve a channel from now on."""
        if self._closing:  # its handshake ended after the listener was closed
            channel.close()
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            logger.warning("%s: refused, %d connections are open", channel.peer, MAX_CONNECTIONS)
            channel.close()
            return
        self._connections.add(channel)
        self._spawn(self._serve(channel, next(self._numbers)))

    async def _serve(self, channel: Channel, number: int) -> None:
        logger.info("client connected", {"client": number, "peer": channel.peer})
        try:
            await Connection(channel, self.sessions, number).run()
        finally:
            self._connections.discard(channel)
            logger.info("client has left", {"client": number})

    async def close(self) -> None:
        """End all connections, sessions and processes."""
        self._closing = True
        for channel in tuple(self._connections):
            channel.close()
        await self.sessions.close()
        for channel in tuple(self._connections):
            channel.abort()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.sessions.close()
        await self._supervisor.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a connection or session failed", exc_info=task.exception())
