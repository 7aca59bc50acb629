"""`treadle mcp-server`: Treadle as an MCP server, for clients that give a model its tools.

What the tools do is in `mcp_threads`; they work on the threads of an app-server in this process. The conversation is
`treadle.mcp.mcp_serving`.
"""

from __future__ import annotations

import argparse
import asyncio
import os

from treadle.cli.in_process import server_of
from treadle.cli.mcp_threads import ThreadTools
from treadle.cli.own_process import closed_or_stopped, exit_with_deadline, start_logging, stop_on_signals, take_stdio
from treadle.client import CodexConfig
from treadle.mcp.mcp_serving import McpConnection
from treadle.transport.stdio import stdio_channel

_EXAMPLES = """\
examples:
  treadle mcp-server
      as MCP clients start it: messages on standard input and output
  treadle mcp-server -c sandbox_mode=read-only
      with settings that go before those of config.toml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES


def run(arguments: argparse.Namespace) -> int:
    """Serve one client, as long as it is there; gives the exit code."""
    overrides = tuple(arguments.config_overrides)
    reader, writer = take_stdio()
    start_logging("warning", arguments.log_level, overrides)
    return asyncio.run(_serve(reader, writer, overrides))


async def _serve(reader: int, writer: int, overrides: tuple[str, ...]) -> int:
    stop = stop_on_signals()
    config = CodexConfig(
        config_overrides=overrides, cwd=os.getcwd(), client_name="treadle_mcp_server", request_timeout=None
    )
    threads = ThreadTools(config, lambda: server_of(threads.client).latest_config.mcp_model_approvals)
    try:
        await threads.connect()
        connection = McpConnection(await stdio_channel(reader, writer, "stdio"), threads)
        await closed_or_stopped(connection, stop)
        connection.close()
        await connection.wait_closed()
    finally:
        await threads.close()
    exit_with_deadline()
    return 0
