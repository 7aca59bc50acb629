"""`Session`: an MCP client over streamable HTTP, that knows nothing of the protocol but its messages; and
`sessions_here`, our server of them in this process, with tools of the test's own.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from kit.processes import DEADLINE_S
from treadle.cli import McpSessions
from treadle.mcp import ServedTools
from treadle.transport import Address
from treadle.transport.listen import listen


class Stream:
    """The answer to a request: its head, and messages as they come. `event` is the id of the last one."""

    event = ""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.response = connection.getresponse()
        self.status = self.response.status
        self.messages: list[Any] = []

    def text(self) -> str:
        return self.response.read().decode()

    def hang_up(self) -> None:
        self.response.close()
        self.connection.close()

    def _next(self) -> Any:
        while line := self.response.readline():
            if line.startswith(b"id: "):
                self.event = line[4:].decode().strip()
            if line.startswith(b"data: {"):
                return json.loads(line[6:])
        raise AssertionError(f"the stream has ended; it had {self.messages}")

    def wait(self, method: str) -> Any:
        while True:
            self.messages.append(self._next())
            if self.messages[-1].get("method") == method:
                return self.messages[-1]

    def result(self) -> Any:
        while True:
            self.messages.append(self._next())
            if "method" not in self.messages[-1]:
                assert self.response.read() == b"\n"  # nothing comes after the answer
                return self.messages[-1]["result"]


class Session:
    def __init__(self, url: str, capabilities: Mapping[str, Any] | None = None, version: str = "2025-06-18") -> None:
        self.url = urlsplit(url)
        self.id: str | None = None
        self._number = 0
        params = {
            "protocolVersion": version,
            "capabilities": {} if capabilities is None else capabilities,
            "clientInfo": {"name": "tests", "version": "1"},
        }
        opened = self.ask("initialize", params)
        assert opened.status == 200, opened.text()
        self.opened = opened.result()
        self.id = opened.response.headers["Mcp-Session-Id"]
        assert self.post({"method": "notifications/initialized"}).status == 202

    def http(self, method: str, body: bytes | None = None, **headers: str) -> Stream:
        connection = http.client.HTTPConnection(self.url.hostname or "", self.url.port, timeout=DEADLINE_S)
        session = {} if self.id is None else {"Mcp-Session-Id": self.id}
        given = {"Authorization": f"Bearer {self.url.path[1:]}", **session}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, "/mcp", body, {**given, **named})
        return Stream(connection)

    def post(self, message: Mapping[str, Any], **headers: str) -> Stream:
        return self.http("POST", json.dumps({"jsonrpc": "2.0", **message}).encode(), **headers)

    def ask(self, method: str, params: Mapping[str, Any], **headers: str) -> Stream:
        self._number += 1
        return self.post({"id": self._number, "method": method, "params": params}, **headers)

    def call(self, tool: str, **arguments: Any) -> Stream:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}}
        return self.ask("tools/call", params)


@contextmanager
def sessions_here(tools: ServedTools) -> Iterator[str]:
    """The URL of a server that offers these tools, on a loop of its own."""
    url: list[str] = []
    ready = threading.Event()

    async def serve() -> None:
        sessions = McpSessions(tools)
        address = Address.parse("ws://127.0.0.1:0")
        listener = await listen(address, lambda _: None, token="secret-of-16-chars", http=("/mcp", sessions.exchange))
        url.append(f"{listener.url}/secret-of-16-chars")
        stop.append((asyncio.get_running_loop(), stopped := asyncio.Event()))
        ready.set()
        await stopped.wait()
        await sessions.close()
        await listener.close()

    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(DEADLINE_S)
    try:
        yield url[0]
    finally:
        [(loop, stopped)] = stop
        loop.call_soon_threadsafe(stopped.set)
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
