"""A client for the published conformance tests: our MCP client, as a program that they start with the URL of a server.

It connects, calls every tool, and logs in where the server wants that, with a browser that says yes to everything. What
it should do more is in `MCP_CONFORMANCE_CONTEXT`, such as a client id that was given out before.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from treadle import Environment
from treadle.config import McpServerConfig, OAuthTable
from treadle.mcp import (
    ElicitParams,
    ElicitResult,
    McpClientInfo,
    McpError,
    McpHttp,
    McpServer,
    OAuthLogin,
    Root,
    SamplingParams,
    SamplingResult,
    ServerTokens,
    TokenFile,
)

# A server may want another scope for each step, and one of the tests never has enough.
MAX_LOGINS = 3


class Owner:
    async def elicit(self, params: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={})

    async def sample(self, params: SamplingParams) -> SamplingResult:
        raise NotImplementedError

    def roots(self) -> list[Root]:
        return []

    def log(self, level: str, logger: str | None, data: object) -> None:
        pass


async def log_in(config: McpServerConfig, file: TokenFile) -> None:
    login = OAuthLogin(config, file)
    try:
        url = await login.begin()
        waiting = asyncio.create_task(login.wait(20))
        await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=20).read())
        await waiting
    finally:
        await login.close()


async def use(server: McpServer) -> None:
    await server.ready()
    for tool in server.tools:
        schema = json.loads(bytes(tool.input_schema))
        arguments = dict.fromkeys(schema.get("properties", {}), 5)
        await server.call_tool(tool.name, arguments)


async def main(url: str) -> None:
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    config = McpServerConfig(name="conformance", url=url, oauth=OAuthTable(client_id=context.get("client_id")))
    http = McpHttp()

    async def nowhere() -> Environment:
        raise AssertionError("nothing runs here")

    with tempfile.TemporaryDirectory() as home:
        file = TokenFile(Path(home), config.name, url)
        server = McpServer(
            config,
            environment=nowhere,
            environ={},
            cwd=home,
            handler=Owner(),
            client=McpClientInfo(name="treadle-tests", version="1"),
            tokens=ServerTokens(file, http),
            http=http,
        )
        try:
            for logins in range(MAX_LOGINS + 1):
                try:
                    await use(server)
                    return
                except McpError as error:
                    if error.kind not in ("authentication", "scope") or logins == MAX_LOGINS:
                        raise
                    await log_in(config, file)
                    await server.stop()
        finally:
            await server.close()
            await http.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
