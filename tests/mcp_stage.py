"""MCP servers for tests: the probe of `tests/kit`, started by our client in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kit.mcp_probe as probe_program
from treadle import Environment
from treadle.config import McpServerConfig
from treadle.errors import RpcError
from treadle.execution import LocalBackend, Process
from treadle.mcp import (
    ElicitParams,
    ElicitResult,
    McpClientInfo,
    McpHttp,
    McpServer,
    McpStatus,
    Root,
    SamplingParams,
    SamplingResult,
    ServerTokens,
)

PROBE = (sys.executable, os.path.abspath(probe_program.__file__))
CLIENT = McpClientInfo(name="treadle-tests", version="1.0", title="Tests")


class Stage:
    """What a server asked for, and how it went; it is the handler of its servers."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self.environment = environment
        self.folder = folder
        self.record = folder / "mcp.jsonl"
        self.statuses: list[McpStatus] = []
        self.logged: list[tuple[str, str | None, object]] = []
        self.asked: list[ElicitParams] = []
        self.answer: Callable[[ElicitParams], Any] = lambda _: ElicitResult(action="accept", content={"name": "Ada"})
        self.http = McpHttp()
        self.servers: list[McpServer] = []

    @property
    def processes(self) -> list[Process]:
        """Those that run in its environment."""
        backend = self.environment._backend
        assert isinstance(backend, LocalBackend)
        return list(backend.open_processes())

    async def elicit(self, params: ElicitParams) -> ElicitResult:
        self.asked.append(params)
        answer = self.answer(params)
        result = answer if isinstance(answer, ElicitResult) else await answer
        assert isinstance(result, ElicitResult)
        return result

    async def sample(self, params: SamplingParams) -> SamplingResult:
        if params.max_tokens > 1000:
            raise RpcError(-1, "too many")
        return SamplingResult(role="assistant", content={"type": "text", "text": "sampled"}, model="m")

    def roots(self) -> list[Root]:
        return [Root(uri=self.folder.as_uri(), name="work")]

    def log(self, level: str, logger: str | None, data: object) -> None:
        self.logged.append((level, logger, data))

    def probe(self, *arguments: str, **settings: Any) -> McpServer:
        """The probe, not started yet."""
        environ = settings.pop("environ", {**os.environ})
        config = McpServerConfig(
            name=settings.pop("name", "probe"),
            command=PROBE[0],
            args=(PROBE[1], "--record", str(self.record), *arguments),
            **settings,
        )
        return self.server(config, environ=environ)

    def server(
        self,
        config: McpServerConfig,
        *,
        environ: dict[str, str] | None = None,
        tokens: ServerTokens | None = None,
        http: McpHttp | None = None,
    ) -> McpServer:
        async def environment() -> Environment:
            return self.environment

        server = McpServer(
            config,
            environment=environment,
            environ={**os.environ} if environ is None else environ,
            cwd=str(self.folder),
            handler=self,
            client=CLIENT,
            tokens=tokens,
            http=http or self.http,
            on_status=self.statuses.append,
        )
        self.servers.append(server)
        return server

    def recorded(self, direction: str) -> list[Any]:
        """The messages that the probe has seen, or has sent."""
        lines = self.record.read_text(encoding="utf-8").splitlines() if self.record.exists() else []
        return [entry["msg"] for entry in map(json.loads, lines) if entry["dir"] == direction]


@asynccontextmanager
async def mcp_stage(folder: Path) -> AsyncIterator[Stage]:
    async with await Environment.connect() as environment:
        stage = Stage(environment, folder)
        try:
            yield stage
        finally:
            for server in stage.servers:
                await server.close()
            await stage.http.close()


def text_of(result: Any) -> str:
    """The text of a result's first content."""
    return str(result.content[0]["text"])


@asynccontextmanager
async def http_probe(stage: Stage, *arguments: str) -> AsyncIterator[HttpProbe]:
    """The probe over HTTP, as a process of its own."""
    probe = HttpProbe(stage, arguments)
    await probe.start()
    try:
        yield probe
    finally:
        await probe.kill()


class HttpProbe:
    def __init__(self, stage: Stage, arguments: tuple[str, ...]) -> None:
        self._stage = stage
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        """Also again, on the same port."""
        arguments = ("--http", "--port", str(self.port), "--record", str(self._stage.record), *self._arguments)
        self._process = await asyncio.create_subprocess_exec(*PROBE, *arguments, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(await self._process.stdout.readline())

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def server(self, *, path: str = "/mcp", **settings: Any) -> McpServer:
        own = {name: settings.pop(name) for name in ("environ", "tokens", "http") if name in settings}
        url = f"http://127.0.0.1:{self.port}{path}"
        config = McpServerConfig(name=settings.pop("name", "web"), url=url, **settings)
        return self._stage.server(config, **own)

    def requests(self, method: str | None = None) -> list[Any]:
        """The requests that it has seen."""
        return [each for each in self._stage.recorded("http") if method in (None, each["method"])]
