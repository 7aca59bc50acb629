"""An app-server in this process, on an event loop in a thread of its own, so that a blocking test can speak to it.

`InProcess` is the transport: what a test sends goes to a `LocalClient`, as objects of the protocol and not as bytes.
"""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from kit.app_client import AppClient
from kit.processes import DEADLINE_S
from kit.wire_client import Json
from treadle.agent.client_requests import ClientRequest
from treadle.errors import RpcError
from treadle.protocol.app import METHODS, convert, encode
from treadle.server.app import AppServer, Watch
from treadle.testing import AppServerHarness

T = TypeVar("T")


class InProcess:
    """To be made on the loop of the server."""

    def __init__(self, server: AppServer) -> None:
        self._arrived: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._requests: set[asyncio.Task[None]] = set()
        self.local = server.connect(lambda event: self._arrived.put(event.frame), self._asked)

    def send(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._take, json.loads(text))

    def receive(self) -> str:
        try:
            arrived = self._arrived.get(timeout=DEADLINE_S)
        except queue.Empty:
            raise AssertionError("the server is silent") from None
        if isinstance(arrived, Exception):
            raise arrived
        return arrived.decode()

    def _take(self, message: Json) -> None:
        if "id" not in message:
            return  # `initialized`, which a client in the same process need not say
        if "method" not in message:
            self.local.answer(message["id"], message["result"])
            return
        request = self._loop.create_task(self._answer(message))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def _answer(self, message: Json) -> None:
        try:
            params = convert(message.get("params") or {}, METHODS[message["method"]].params)
            answer: Json = {"result": json.loads(encode(await self.local.request(message["method"], params)))}
        except RpcError as error:
            data = {} if error.data is None else {"data": error.data}
            answer = {"error": {"code": error.code, "message": error.message, **data}}
        except Exception as problem:  # params that only a client on a wire can send, or a bug: for the test to see
            self._arrived.put(problem)
            return
        self._arrived.put(json.dumps({"id": message["id"], **answer}).encode())

    def _asked(self, asked: ClientRequest) -> None:
        message = {"id": asked.id, "method": asked.method, "params": json.loads(encode(asked.params))}
        self._arrived.put(json.dumps(message).encode())


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
