"""A WebSocket proxy that records every message of both sides, and can cut the line and keep it cut.

Owns the two connections of each client and the record. Messages are passed on unchanged; what they mean is only looked
at by the questions of `Traffic`.
"""

from __future__ import annotations

import asyncio
import base64
import http
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

Json: TypeAlias = dict[str, Any]
Side: TypeAlias = Literal["client", "server"]
# A busy machine is no reason to fail.
DEADLINE = 90.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """One message; `connection` counts from 1."""

    connection: int
    sender: Side
    message: Json

    def answers(self, request: Recorded) -> bool:
        if self.connection != request.connection or self.sender == request.sender:
            return False
        return "method" not in self.message and self.message.get("id") == request.message["id"]


class Traffic:
    """Everything that went through, in the order in which the proxy saw it."""

    def __init__(self) -> None:
        self.messages: list[Recorded] = []
        self._more = asyncio.Event()

    def add(self, recorded: Recorded) -> None:
        self.messages.append(recorded)
        self._more.set()

    async def wait_for(self, wanted: Callable[[Recorded], bool]) -> Recorded:
        """The first message, past or future, that is wanted."""
        looked_at = 0
        async with asyncio.timeout(DEADLINE):
            while True:
                for recorded in self.messages[looked_at:]:
                    if wanted(recorded):
                        return recorded
                looked_at = len(self.messages)
                self._more.clear()
                await self._more.wait()

    def calls(self, method: str) -> list[Recorded]:
        """Requests and notifications of this method, of either side."""
        return [recorded for recorded in self.messages if recorded.message.get("method") == method]

    def params(self, method: str) -> list[Json]:
        return [recorded.message["params"] for recorded in self.calls(method)]

    def reply(self, request: Recorded) -> Json:
        """The whole reply to a recorded request, `result` or `error` and all."""
        for recorded in self.messages:
            if recorded.answers(request):
                return recorded.message
        raise AssertionError(f"no reply to {request}")

    def pushed(self, process_id: str, *streams: str) -> bytes:
        """The output of a process as it was pushed, in the order of its numbers; of all streams if none is named."""
        chunks = [
            (params["seq"], base64.b64decode(params["chunk"]))
            for params in self.params("process/output")
            if params["processId"] == process_id and (not streams or params["stream"] in streams)
        ]
        return b"".join(chunk for _, chunk in sorted(chunks))

    def exit_code(self, process_id: str) -> int:
        [code] = [p["exitCode"] for p in self.params("process/exited") if p["processId"] == process_id]
        assert isinstance(code, int)
        return code


class RecordingProxy:
    """Listens on loopback and speaks to `target` for each client that comes."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.url = ""
        self.traffic = Traffic()
        self.connections = 0
        self.refused = asyncio.Event()
        self._refusing = False
        self._open: set[ServerConnection | ClientConnection] = set()

    def cut(self) -> None:
        """Drop all connections, both sides, with no close frame."""
        for connection in self._open:
            connection.transport.abort()

    def refuse(self) -> None:
        """Let no new connection through until `accept`; `refused` is set when one tried."""
        self._refusing = True

    def accept(self) -> None:
        self._refusing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RecordingProxy]:
        server: Server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            process_request=self._admit,
            compression=None,
            max_size=None,
            ping_interval=None,
            close_timeout=1,
        )
        async with server:
            port = next(iter(server.sockets)).getsockname()[1]
            self.url = f"ws://127.0.0.1:{port}"
            try:
                yield self
            finally:
                self.cut()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if not self._refusing:
            return None
        self.refused.set()
        return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "refusing for now\n")

    async def _serve(self, client: ServerConnection) -> None:
        self.connections += 1
        number = self.connections
        async with connect(
            self.target, proxy=None, compression=None, max_size=None, ping_interval=None, close_timeout=1
        ) as server:
            with self._tracked(client), self._tracked(server):
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass_on(number, "client", client, server))
                    both.create_task(self._pass_on(number, "server", server, client))

    @contextmanager
    def _tracked(self, connection: ServerConnection | ClientConnection) -> Iterator[None]:
        self._open.add(connection)
        try:
            yield
        finally:
            self._open.discard(connection)

    async def _pass_on(
        self,
        number: int,
        sender: Side,
        source: ServerConnection | ClientConnection,
        sink: ServerConnection | ClientConnection,
    ) -> None:
        try:
            async for frame in source:
                self.traffic.add(Recorded(number, sender, json.loads(frame)))
                await sink.send(frame)
        except ConnectionClosed:
            pass
        finally:
            await sink.close()
