"""`Dialer`: an exec-server that connects to its client, an app-server, from where nobody can connect to it.

It keeps one connection open that nobody uses, and opens the next when that one is taken; so each client has its own.
Whatever happens to connections, the sessions stay with this process, and are resumed over new ones.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import socket
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import structs

from treadle.errors import ChannelClosed
from treadle.execution.server.exec_connections import ExecServer
from treadle.transport import Address, Channel
from treadle.transport.sockets import connect

logger: logging.Logger = logging.getLogger(__name__)

# Between two attempts: doubled each time, and less by chance, so that many do not come back in the same moment.
FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 30.0
MAX_CONNECTIONS: Final = 64


def host_name() -> str:
    """The name of this machine, as far as it is one for an executor."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("._-")[:64] or "executor"


class Dialer:
    """Keeps this exec-server reachable for an app-server, until it is cancelled."""

    def __init__(
        self,
        server: ExecServer,
        address: Address,
        *,
        token: str,
        name: str,
        labels: Sequence[str] = (),
        rights: str = "",
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        """`rights` names those that the app-server has here, of the rights of the server."""
        self.name = name
        # The same for all connections of this process: who has it is the one that has the sessions.
        said = [("name", name), ("instance", os.urandom(16).hex()), *(("label", label) for label in labels)]
        self._server = server
        self._address = structs.replace(address, path=f"{address.path}?{urlencode(said)}")
        self._rights = rights
        self._connect = partial(
            connect, self._address, token=token, ca_file=ca_file, cert_file=cert_file, key_file=key_file
        )
        self._open: set[Channel] = set()

    async def run(self) -> None:
        delay = FIRST_DELAY_S
        while True:
            while len(self._open) >= MAX_CONNECTIONS:
                await _first(*(channel.wait_closed() for channel in self._open))
                self._open = {channel for channel in self._open if not channel.closed}
            try:
                channel = await self._connect()
            except ChannelClosed as error:
                pause = delay * random.uniform(0.5, 1)
                fields = {"reason": error.reason, "in_s": round(pause, 1)}
                logger.warning("the app-server cannot be reached; trying again", fields)
                await asyncio.sleep(pause)
                delay = min(2 * delay, LONGEST_DELAY_S)
                continue
            delay = FIRST_DELAY_S
            logger.info("ready for the app-server", {"peer": channel.peer})
            channel.token_name = self._rights
            taken = asyncio.Event()
            self._server.accept(channel, taken.set)
            self._open = {each for each in (*self._open, channel) if not each.closed}
            await _first(taken.wait(), channel.wait_closed())
            if not taken.is_set():
                logger.warning("a connection was lost before it was used", {"peer": channel.peer})
                await asyncio.sleep(delay * random.uniform(0.5, 1))


async def _first(*awaited: Coroutine[Any, Any, object]) -> None:
    """Wait for one of them."""
    waits = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
