"""MCP: the tools of other programs, offered to a model; and Treadle as such a program.

The life of a configured server is `mcp_server.McpServer`, where to begin: it speaks in an `McpSession` over one of
two transports, a process (`mcp_stdio`) or streamable HTTP (`mcp_http`). Pure are `tool_specs` (how tools are described
to a model), `results` (what the model gets of a result) and `tool_search`. The package knows nothing of threads and
turns: what a server asks for goes to an `McpHandler`. Nothing here is imported where no MCP server is configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.mcp.mcp_http import McpHttp
    from treadle.mcp.mcp_messages import CallToolResult, ElicitParams, ElicitResult, McpCallError, McpClientInfo
    from treadle.mcp.mcp_messages import McpError, McpProgress, Root, SamplingParams, SamplingResult, ToolAnnotations
    from treadle.mcp.mcp_messages import ToolInfo, read_tool
    from treadle.mcp.mcp_server import McpServer, McpStatus
    from treadle.mcp.mcp_serving import McpCall, McpConnection, ServedTools
    from treadle.mcp.mcp_session import Allowance, MAX_ASKED, McpSession, McpTransport
    from treadle.mcp.oauth import OAuthError, challenge_of, discover
    from treadle.mcp.oauth_login import OAuthLogin
    from treadle.mcp.oauth_tokens import ServerTokens, TokenFile
    from treadle.mcp.results import MAX_ITEM_BYTES, ResultFiles, item_result, model_output, prompt_input
    from treadle.mcp.tool_search import SearchArguments, ToolIndex, found_specs, plain_answer, search_spec, too_many
    from treadle.mcp.tool_specs import ToolNames, model_schema, namespace_spec, real_arguments
