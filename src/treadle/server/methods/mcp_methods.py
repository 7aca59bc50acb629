"""`mcpServerStatus/list`, `mcpServer/tool/call`, `mcpServer/resource/read`, `mcpServer/prompt/list` and `get`,
`mcpServer/oauth/login`, `config/mcpServer/reload`.

A request that names a thread is about the servers of that thread. One that names none is about those of the settings:
`McpServers` finds or starts them for all such requests.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import UNSET

from treadle.agent.event import Event, now_ms
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, RpcError
from treadle.protocol.app.base import Empty, NoParams
from treadle.protocol.app.extensions import (
    ListMcpServerStatusParams,
    ListMcpServerStatusResponse,
    McpResourceReadParams,
    McpResourceReadResponse,
    McpServerOauthLoginCompletedNotification,
    McpServerOauthLoginParams,
    McpServerOauthLoginResponse,
    McpServerStatus,
    McpServerToolCallParams,
    McpServerToolCallResponse,
)
from treadle.protocol.app.ours import (
    McpServerPromptGetParams,
    McpServerPromptGetResponse,
    McpServerPromptListParams,
    McpServerPromptListResponse,
)
from treadle.server.app import AppServer
from treadle.server.clients import ServerCall
from treadle.server.methods.config_methods import page

if TYPE_CHECKING:
    from treadle.config.mcp_settings import McpServerConfig


async def list_statuses(call: ServerCall[ListMcpServerStatusParams]) -> ListMcpServerStatusResponse:
    params, server = call.params, call.server
    if params.thread_id is not None:
        statuses = await server.threads.find(params.thread_id).mcp_statuses(params)
    else:
        statuses = await _configured(server, params)
    data, following = page(statuses, params, "MCP servers")
    return ListMcpServerStatusResponse(data=data, next_cursor=following)


async def _configured(server: AppServer, params: ListMcpServerStatusParams) -> list[McpServerStatus]:
    configs = server.shown_config.mcp_servers
    if not configs:
        return []  # and nothing of MCP is loaded
    from treadle.agent.thread.mcp_requests import status_of

    async def status(config: McpServerConfig) -> McpServerStatus:
        found = await server.mcp.inspect(config)
        full = params.detail != "toolsAndAuthOnly"
        return await status_of(config, found, full=full, logged_in=server.mcp.is_logged_in(config))

    wanted = (configs[name] for name in sorted(configs) if params.server_name in (None, name))
    return list(await asyncio.gather(*map(status, wanted)))


async def call_tool(call: ServerCall[McpServerToolCallParams]) -> McpServerToolCallResponse:
    """Call a tool for the client, which needs nobody's approval for it and makes no item."""
    return await call.server.threads.find(call.params.thread_id).call_mcp_tool(call.params)


async def read_resource(call: ServerCall[McpResourceReadParams]) -> McpResourceReadResponse:
    params, server = call.params, call.server
    if params.thread_id is not None:
        return await server.threads.find(params.thread_id).read_mcp_resource(params)
    from treadle.agent.thread.mcp_requests import read_from, unknown_server

    config = server.shown_config.mcp_servers.get(params.server)
    if config is None or not config.enabled:
        raise unknown_server(params.server)
    found = await server.mcp.inspect(config)
    assert found is not None  # it is enabled
    return await read_from(found, params)


async def list_prompts(call: ServerCall[McpServerPromptListParams]) -> McpServerPromptListResponse:
    prompts = await call.server.threads.find(call.params.thread_id).mcp_prompts()
    data, following = page(prompts, call.params, "prompts")
    return McpServerPromptListResponse(data=data, next_cursor=following)


async def get_prompt(call: ServerCall[McpServerPromptGetParams]) -> McpServerPromptGetResponse:
    """Have a server say what a prompt of it is, as the input of a turn."""
    return await call.server.threads.find(call.params.thread_id).get_mcp_prompt(call.params)


async def log_in(call: ServerCall[McpServerOauthLoginParams]) -> McpServerOauthLoginResponse:
    """Begin a login in the browser of the user: the client opens the address, and hears when it is done."""
    params, server = call.params, call.server
    if params.thread_id is not None:
        config = server.threads.find(params.thread_id).mcp_config(params.name)
    else:
        config = server.shown_config.mcp_servers.get(params.name)
    if config is None:
        raise RpcError(INVALID_REQUEST, f"No MCP server named '{params.name}' found.")
    if config.url is None:
        raise RpcError(INVALID_REQUEST, "OAuth login is only supported for streamable HTTP servers.")
    from treadle.mcp.mcp_messages import McpError  # only where a server is

    url = config.url

    def done(login_id: str, error: str | None) -> None:
        completed = McpServerOauthLoginCompletedNotification(
            name=params.name,
            thread_id=params.thread_id,
            login_id=login_id,
            success=error is None,
            error=UNSET if error is None else error,
        )
        server.broadcast(Event("mcpServer/oauthLogin/completed", completed, None, now_ms()))
        for thread_id in server.threads.ids() if error is None else ():
            thread = server.threads.get(thread_id)
            if thread is not None:
                asked = thread_id == params.thread_id
                start = thread.mcp_logged_in(params.name, url, asked=asked)
                server.spawn(start, f"start of MCP server {params.name} for {thread_id}")

    try:
        return await server.mcp.log_in(config, params, done)
    except McpError as error:
        raise RpcError(INTERNAL_ERROR, error.message) from None


def reload(call: ServerCall[NoParams]) -> Empty:
    """Read the settings anew; the threads that use MCP servers are brought to them, each in its own time."""
    server = call.server
    server.load_config()
    for thread_id in server.threads.ids():
        thread = server.threads.get(thread_id)
        if thread is not None:
            server.spawn(thread.reload_mcp(), f"reload of the MCP servers of {thread_id}")
    return Empty()
