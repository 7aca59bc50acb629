"""`ToolServer`: the host's tools for an engine in another process, as an MCP server that the engine can start.

    engine ── stdin/stdout ── tool_bridge ── unix socket ── ToolServer ── the tools, in this process

The socket is in a folder that only this user may enter, with a name that nobody can guess, and strangers are refused
besides. Who is let in may call these tools and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from treadle import __version__
from treadle.client.tools import Tool
from treadle.host import tool_bridge
from treadle.host.host_tools import limited
from treadle.mcp.mcp_messages import McpClientInfo
from treadle.mcp.mcp_serving import McpCall, McpConnection
from treadle.own_python import isolated_python
from treadle.protocol.app.item_parts import InputTextDynamicToolCallOutputContentItem
from treadle.runners.engine import McpCommand
from treadle.transport.sockets import peer_of, unix_socket
from treadle.transport.stdio import LineFramer
from treadle.transport.stream import StreamChannel

logger: logging.Logger = logging.getLogger(__name__)

NAME: Final = "treadle_host"
MAX_LINE: Final = 16 << 20
MAX_SOCKET_PATH: Final = 100  # of 107 bytes that the system has


class ToolServer:
    """Listens from the moment it is made; answers after `start`. `close` ends it, and removes the socket.

    Args:
        tools: What is offered.
        limit_s: How many seconds a call may take; None has no limit.
    """

    info: McpClientInfo = McpClientInfo(name="treadle-host", version=__version__)
    instructions: str = "Tools of the program that runs this agent."

    def __init__(self, tools: Sequence[Tool], limit_s: float | None) -> None:
        self._tools = {tool.name: limited(tool, limit_s) for tool in tools}
        # Where the folder for temporary files is too deep for a socket.
        parent = None if len(os.fsencode(tempfile.gettempdir())) < MAX_SOCKET_PATH // 2 else "/tmp"
        self._folder = tempfile.TemporaryDirectory(prefix="treadle-", dir=parent, ignore_cleanup_errors=True)
        path = os.path.join(self._folder.name, "tools")
        words = isolated_python("-S", tool_bridge.__file__, path)
        self.command: McpCommand = McpCommand(name=NAME, command=words, tools=tuple(self._tools))
        self._socket = unix_socket(path)
        self._server: asyncio.Server | None = None
        self._clients: dict[_EngineChannel, McpConnection] = {}

    async def start(self) -> None:
        def accept() -> _EngineChannel:
            channel = _EngineChannel(self._clients)
            self._clients[channel] = McpConnection(channel, self)
            return channel

        self._server = await asyncio.get_running_loop().create_unix_server(accept, sock=self._socket)

    async def close(self) -> None:
        """Idempotent."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        clients = tuple(self._clients.values())
        for client in clients:
            client.close()
        await asyncio.gather(*(client.wait_closed() for client in clients))
        self._folder.cleanup()

    def offered(self, *, can_ask: bool) -> Mapping[str, Mapping[str, Any]]:
        return {
            name: {"name": name, "description": tool.description, "inputSchema": tool.input_schema}
            for name, tool in self._tools.items()
        }

    async def call(self, name: str, arguments: Raw, call: McpCall) -> Mapping[str, Any]:
        tool = self._tools[name]
        try:
            given = msgspec.json.decode(arguments, type=dict[str, Any])
            content = tool.content(await tool.call(given))
        except Exception as error:
            logger.debug("the tool %s failed", name, exc_info=error)
            return {"content": [_block(item) for item in tool.failure(error)], "isError": True}
        return {"content": [_block(item) for item in content]}


class _EngineChannel(StreamChannel):
    """A connection of an engine's bridge; a stranger's ends at once."""

    def __init__(self, everyone: dict[_EngineChannel, McpConnection]) -> None:
        super().__init__(LineFramer(max_line=MAX_LINE), "an engine")
        self._everyone = everyone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if peer_of(transport.get_extra_info("socket")).is_stranger:
            logger.warning("another user tried to use the tools of the host")
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._everyone.pop(self, None)
        super().connection_lost(error)


def _block(item: Any) -> dict[str, str]:
    """A part of a tool's answer, as MCP has it."""
    if isinstance(item, InputTextDynamicToolCallOutputContentItem):
        return {"type": "text", "text": item.text}
    head, _, data = str(item.image_url).partition(";base64,")
    if not head.startswith("data:image/"):
        return {"type": "text", "text": str(item.image_url)}
    return {"type": "image", "data": data, "mimeType": head.removeprefix("data:")}
