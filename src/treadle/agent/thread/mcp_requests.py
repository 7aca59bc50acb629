"""What clients ask of MCP servers without a turn: how they are, a call of a tool, a resource to read, a prompt.

A call here is the client's own: it has no item and asks for no approval.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw, structs

from treadle.errors import INTERNAL_ERROR, RpcError
from treadle.mcp.mcp_messages import McpCallError, McpError
from treadle.mcp.results import prompt_input
from treadle.protocol.app.base import decode
from treadle.protocol.app.extensions import (
    ListMcpServerStatusParams,
    McpResourceReadParams,
    McpResourceReadResponse,
    McpServerInfo,
    McpServerStatus,
    McpServerToolCallParams,
    McpServerToolCallResponse,
    Resource,
    ResourceTemplate,
    Tool,
)
from treadle.protocol.app.ours import McpPrompt, McpServerPromptGetParams, McpServerPromptGetResponse

if TYPE_CHECKING:
    from treadle.agent.thread.thread_mcp import ThreadMcp
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.mcp.mcp_server import McpServer

T = TypeVar("T")

STARTUP_FAILED: Final = "MCP startup failed: "


# --- how they are -----------------------------------------------------------------------------------------------------


async def thread_statuses(mcp: ThreadMcp, params: ListMcpServerStatusParams) -> list[McpServerStatus]:
    """Of the servers of a thread, which are started for it."""
    wanted = [name for name in sorted(mcp.servers) if params.server_name in (None, name)]
    await mcp.start(wanted)
    servers = [mcp.servers[name] for name in wanted if name in mcp.servers]
    full = params.detail != "toolsAndAuthOnly"
    return list(
        await asyncio.gather(
            *(
                status_of(
                    server.config,
                    server.connection_made,
                    full=full,
                    logged_in=mcp.is_logged_in(server.config),
                    runtime=server.state,
                )
                for server in servers
            )
        )
    )


async def status_of(
    config: McpServerConfig, server: McpServer | None, *, full: bool, logged_in: bool, runtime: str | None = None
) -> McpServerStatus:
    """`full` has what it has to read, too. `runtime` is how it is for a thread."""
    info = None if server is None else server.info
    error = config.problem if server is None else server.error
    resources: list[Raw] = []
    templates: list[Raw] = []
    if full and server is not None and server.state == "connected":
        resources, templates = await asyncio.gather(
            server.list_all("resources"), server.list_all("resources/templates")
        )
    offered = () if server is None else server.tools
    address = urlsplit(config.url or "")
    return McpServerStatus(
        name=config.name,
        auth_status=_auth_status(config, server, logged_in),
        http_origin=f"{address.scheme}://{address.netloc.rpartition('@')[2]}" if config.url else None,
        runtime_status=runtime,
        server_info=None if info is None else _read(msgspec.json.encode(info.server_info), McpServerInfo),
        server_capabilities=None if info is None else info.capabilities,
        tools={tool.name: read for tool in offered if (read := _read(bytes(tool.raw), Tool)) is not None},
        tools_error=None if error is None else STARTUP_FAILED * (STARTUP_FAILED in error) + startup_error(error),
        resources=_each(resources, Resource),
        resource_templates=_each(templates, ResourceTemplate),
    )


def startup_error(error: str) -> str:
    """Why a start has failed, without saying that it has."""
    return error.rpartition(STARTUP_FAILED)[2]


def _auth_status(config: McpServerConfig, server: McpServer | None, logged_in: bool) -> str:
    if not config.is_http:
        return "unsupported"
    if config.bearer_token_env_var is not None or any(name.lower() == "authorization" for name in config.http_headers):
        return "bearerToken"
    if logged_in:
        return "oAuth"
    state = "notStarted" if server is None else server.state
    return {"authenticationRequired": "notLoggedIn", "connected": "unsupported"}.get(state, "unknown")


def _each(raws: list[Raw], kind: type[T]) -> tuple[T, ...]:
    return tuple(read for raw in raws if (read := _read(bytes(raw), kind)) is not None)


def _read(data: bytes, kind: type[T]) -> T | None:
    """What a server has sent, if it is what the protocol says."""
    try:
        return decode(data, kind)
    except msgspec.DecodeError:
        return None


# --- calls ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _using(mcp: ThreadMcp | None, name: str) -> AsyncIterator[McpServer]:
    server = None if mcp is None else mcp.servers.get(name)
    if server is None or server.state == "disabled":
        raise unknown_server(name)
    try:
        async with server.calling(None) as connection:
            yield connection
    except McpError as error:
        raise _as_rpc_error(error) from None


def unknown_server(name: str) -> RpcError:
    return RpcError(INTERNAL_ERROR, f"unknown MCP server '{name}'")


async def call_tool(mcp: ThreadMcp | None, params: McpServerToolCallParams) -> McpServerToolCallResponse:
    meta = {**(params.meta if isinstance(params.meta, Mapping) else {}), "threadId": params.thread_id}
    async with _using(mcp, params.server) as server:
        if not server.config.allows(params.tool):
            raise RpcError(INTERNAL_ERROR, f"the settings switch off the tool '{params.tool}' of '{params.server}'")
        result = await server.call_tool(params.tool, params.arguments, meta=meta)
    return McpServerToolCallResponse(
        content=result.content,
        meta=UNSET if result.meta is None else result.meta,
        is_error=UNSET if result.is_error is None else result.is_error,
        structured_content=UNSET if result.structured_content is None else result.structured_content,
    )


async def read_resource(mcp: ThreadMcp | None, params: McpResourceReadParams) -> McpResourceReadResponse:
    async with _using(mcp, params.server) as server:
        return await read_from(server, params)


async def read_from(server: McpServer, params: McpResourceReadParams) -> McpResourceReadResponse:
    try:
        read = await server.read_resource(params.uri)
    except McpError as error:
        raise _as_rpc_error(error) from None
    try:
        return decode(msgspec.json.encode({"contents": read.contents}), McpResourceReadResponse)
    except msgspec.DecodeError:
        raise RpcError(INTERNAL_ERROR, f"what '{params.server}' has sent is no resource") from None


# --- prompts ----------------------------------------------------------------------------------------------------------


async def list_prompts(mcp: ThreadMcp) -> list[McpPrompt]:
    """Of the servers of a thread, which are started for it."""
    await mcp.start()
    usable = [server.connection for server in mcp.servers.values() if server.state == "connected"]
    found = await asyncio.gather(*(server.list_all("prompts") for server in usable))
    return [
        structs.replace(prompt, server=server.name)
        for server, raws in zip(usable, found, strict=True)
        for prompt in _each(raws, McpPrompt)
    ]


async def get_prompt(mcp: ThreadMcp | None, params: McpServerPromptGetParams) -> McpServerPromptGetResponse:
    async with _using(mcp, params.server) as server:
        got = await server.get_prompt(params.name, params.arguments)
    return McpServerPromptGetResponse(description=got.description, input=tuple(prompt_input(got.messages)))


def _as_rpc_error(error: McpError) -> RpcError:
    """A server's own error is passed on as it is."""
    if error.kind == "rpc":
        return RpcError(error.code, error.reason if isinstance(error, McpCallError) else error.message, error.data)
    return RpcError(INTERNAL_ERROR, error.message)
