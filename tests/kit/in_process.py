"""An app-server in this process, on an event loop in a thread of its own, so that a blocking test can speak to it.

`InProcess` is the transport: the connection that the SDK has to a server in its process.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from kit.app_client import AppClient
from kit.processes import DEADLINE_S
from treadle.client import DirectChannel
from treadle.server import AppServer, Watch
from treadle.testing import AppServerHarness

T = TypeVar("T")


class InProcess:
    """To be made on the loop of the server."""

    def __init__(self, server: AppServer) -> None:
        self._arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._channel = DirectChannel(self._arrived.put)
        self.local = server.accept(self._channel, must_not_lose=True)

    def send(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._channel.deliver, text.encode())

    def receive(self) -> str:
        try:
            return self._arrived.get(timeout=DEADLINE_S).decode()
        except queue.Empty:
            raise AssertionError("the server is silent") from None


class ServerHere:
    """What `server` is made of belongs to the thread of its loop; `call` runs a function there."""

    def __init__(self, server: AppServer, portal: BlockingPortal) -> None:
        self.server = server
        self._portal = portal

    def call(self, function: Callable[[], T]) -> T:
        return self._portal.call(function)

    def connect(self, **capabilities: Any) -> AppClient:
        """Another client, with its handshake done."""
        client = AppClient(self.call(lambda: InProcess(self.server)))
        client.initialize(**capabilities)
        return client

    def hang_up(self, client: AppClient) -> None:
        self.call(_transport(client).local.close)

    def watches(self, client: AppClient) -> dict[str, Watch]:
        """What the client watches or runs outside of any thread."""
        return self.server.watches(_transport(client).local)


def _transport(client: AppClient) -> InProcess:
    assert isinstance(client.transport, InProcess)
    return client.transport


@contextmanager
def server_here(harness: AppServerHarness, *overrides: str) -> Iterator[ServerHere]:
    server = AppServer(home=harness.home, cwd=str(harness.workspace), overrides=overrides)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server):
        yield ServerHere(server, portal)
