"""`AsyncAppClient`: for async tests, in this process or over the pipes of a child; `app_client` is the blocking one.

Every result and every notification is checked against the schema of the real server before a test sees it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from treadle.agent.event import Event
from treadle.errors import RpcError
from treadle.protocol.app import METHODS, NOTIFICATIONS, convert, encode
from treadle.server.app import AppServer
from treadle.server.local_client import LocalClient
from unit.protocol.test_app_schema import check, definition_of

ROADS = ("local", "stdio")
INITIALIZE = {"clientInfo": {"name": "tests", "version": "1"}, "capabilities": {"experimentalApi": True}}


class AsyncAppClient(ABC):
    """`request` gives the result as plain JSON, or raises `RpcError`. `notices` are all that came, oldest first."""

    def __init__(self) -> None:
        self.notices: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        self.ended = False

    @abstractmethod
    async def send(self, method: str, params: object) -> Any: ...

    async def request(self, method: str, params: object) -> Any:
        result = await self.send(method, params)
        definition = definition_of(METHODS[method].result)
        assert definition is None or check(definition, result) == []
        return result

    async def refusal(self, method: str, params: object) -> RpcError:
        try:
            result = await self.send(method, params)
        except RpcError as error:
            return error
        raise AssertionError(f"{method} was not refused but answered {result}")

    def heard(self, notice: dict[str, Any]) -> None:
        definition = definition_of(NOTIFICATIONS[notice["method"]])
        assert definition is not None
        assert check(definition, notice["params"]) == []
        self.notices.append(notice)
        self._news.set()

    def params_of(self, method: str) -> list[dict[str, Any]]:
        return [notice["params"] for notice in self.notices if notice["method"] == method]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for notices until the condition holds; the deadline is that of the test."""
        while not condition():
            assert not self.ended, f"the server says no more; it said {self.notices}"
            self._news.clear()
            await self._news.wait()


class InProcess(AsyncAppClient):
    def __init__(self, server: AppServer) -> None:
        super().__init__()
        self.server = server
        self.client: LocalClient = server.connect(self._on_event, lambda ask: None)

    def _on_event(self, event: Event) -> None:
        self.heard(json.loads(event.frame))

    async def send(self, method: str, params: object) -> Any:
        wanted = METHODS[method].params
        return json.loads(encode(await self.client.request(method, convert({} if params is None else params, wanted))))


class OverStdio(AsyncAppClient):
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.process = process
        self._next = 0
        self._waiters: dict[int, asyncio.Future[Any]] = {}

    async def read(self) -> None:
        """To the end of the stream; then nobody waits any longer, whatever has happened."""
        try:
            await self._read()
        finally:
            self.ended = True
            self._news.set()
            for waiter in self._waiters.values():
                if not waiter.done():
                    waiter.set_exception(EOFError("the server says no more"))

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message:
                self.heard(message)
            elif "error" in message:
                error = message["error"]
                failure = RpcError(error["code"], error["message"], error.get("data"))
                self._waiters.pop(message["id"]).set_exception(failure)
            else:
                self._waiters.pop(message["id"]).set_result(message["result"])

    def begin(self, method: str, params: object) -> asyncio.Future[Any]:
        """Send a request and do not wait."""
        assert self.process.stdin is not None
        self._next += 1
        waiter = self._waiters[self._next] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": self._next, "method": method, "params": params}).encode() + b"\n")
        return waiter

    async def send(self, method: str, params: object) -> Any:
        return await self.begin(method, params)


@asynccontextmanager
async def opened(road: str, home: Path, workspace: Path, *overrides: str) -> AsyncIterator[AsyncAppClient]:
    """A client that is initialized, of a server whose home and working directory these are."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE", "OPENAI"))}
    environ |= {"TREADLE_HOME": str(home)}
    opening = _in_process if road == "local" else _over_stdio
    async with opening(environ, home, workspace, overrides) as client:
        yield client


@asynccontextmanager
async def _in_process(
    environ: dict[str, str], home: Path, workspace: Path, overrides: tuple[str, ...]
) -> AsyncIterator[AsyncAppClient]:
    async with AppServer(home=home, environ=environ, cwd=str(workspace), overrides=overrides) as server:
        client = InProcess(server)
        await client.send("initialize", INITIALIZE)
        yield client
        client.client.close()


@asynccontextmanager
async def _over_stdio(
    environ: dict[str, str], home: Path, workspace: Path, overrides: tuple[str, ...]
) -> AsyncIterator[AsyncAppClient]:
    flags = [word for override in overrides for word in ("-c", override)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "treadle", *flags, "app-server"),
        cwd=workspace,
        env=environ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    client = OverStdio(process)
    reading = asyncio.create_task(client.read())
    try:
        await client.send("initialize", INITIALIZE)
        yield client
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
        await reading
    finally:
        reading.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
