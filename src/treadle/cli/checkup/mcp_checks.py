"""What `treadle doctor` finds of the MCP servers: each is started, asked for its tools, and ended.

A server that is reached over HTTP is asked only with `--online`, unless it is on this machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from treadle._version import __version__
from treadle.cli.checkup.checks import Check
from treadle.config import ConfigError, find_home, load_config
from treadle.config.environment_settings import LOCAL
from treadle.execution import Environment

if TYPE_CHECKING:
    from treadle.config.mcp_settings import McpServerConfig

# Programs at a time: many are started by `npx` or `uvx`, which keep a core busy.
AT_ONCE: Final = 4
_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def configured_servers(overrides: Sequence[str]) -> list[McpServerConfig]:
    """The MCP servers of the settings; none where the settings cannot be used, which is reported elsewhere."""
    try:
        return list(load_config(find_home(os.environ), overrides=overrides).config.mcp_servers.values())
    except ConfigError:
        return []


async def check_mcp_servers(servers: Sequence[McpServerConfig], *, online: bool) -> list[Check]:
    """One check for each, in their order."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(server: McpServerConfig, environment: Environment) -> Check:
        async with places:
            return await _try(server, environment, online=online)

    async with await Environment.connect() as environment, asyncio.TaskGroup() as group:
        checking = [group.create_task(one(server, environment)) for server in servers]
    return [task.result() for task in checking]


async def _try(config: McpServerConfig, environment: Environment, *, online: bool) -> Check:
    # Only when there is such a server.
    from treadle.mcp.mcp_messages import McpClientInfo, McpError
    from treadle.mcp.mcp_server import McpServer
    from treadle.server.mcp_servers import SharedServer

    name = config.name
    if config.problem is not None:
        return Check(f"{name} cannot be used: {config.problem}", "failed", f"treadle mcp get {name}")
    if not config.enabled:
        return Check(f"{name} is switched off", "skipped")
    if config.url is not None and not online and urlsplit(config.url).hostname not in _HERE:
        return Check(f"{name} is on another machine, and was not asked", "skipped", "treadle doctor --online")

    if config.environment_id != LOCAL:
        do = f"treadle environments check {config.environment_id}"
        return Check(f"{name} runs in `{config.environment_id}`, and was not started", "skipped", do)

    async def here() -> Environment:
        return environment

    client = McpClientInfo(name="treadle-doctor", version=__version__)
    http = tokens = None
    if config.url is not None:
        from treadle.mcp.mcp_http import McpHttp
        from treadle.mcp.oauth_tokens import ServerTokens, TokenFile

        http = McpHttp()
        tokens = ServerTokens(TokenFile(find_home(os.environ), name, config.url), http)
    server = McpServer(
        config,
        environment=here,
        environ=os.environ,
        cwd=os.getcwd(),
        handler=SharedServer(),  # which has nobody who could be asked
        client=client,
        tokens=tokens,
        http=http,
    )
    began = time.monotonic()
    try:
        await server.ready()
        assert server.info is not None
        tools = "1 tool" if len(server.tools) == 1 else f"{len(server.tools)} tools"
        said = " ".join(
            str(server.info.server_info[key]) for key in ("name", "version") if key in server.info.server_info
        )
        return Check(f"{name}: {tools}" + (f", {said}" if said else ""), seconds=time.monotonic() - began)
    except McpError as error:
        advice = f"treadle mcp login {name}" if error.kind == "authentication" else f"treadle mcp get {name}"
        what, *detail = error.message.splitlines()
        return Check(f"{name}: {what}", "failed", advice, detail, seconds=time.monotonic() - began)
    finally:
        await server.close()
        if http is not None:
            await http.close()
