"""`McpToolset`: what the model of a thread can call of MCP servers: their tools, the three functions for resources, and
`tool_search` where there are more tools than the model should read of with every request.

It is made anew when the servers, their tools or their settings change. What a call does is `mcp_calls`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from treadle.agent.tools.tool import Output, Tool, ToolCall
from treadle.mcp.mcp_messages import ListKind, ToolInfo
from treadle.mcp.tool_search import (
    NAME,
    FoundTool,
    SearchArguments,
    ToolIndex,
    found_specs,
    plain_answer,
    search_spec,
    too_many,
)
from treadle.mcp.tool_specs import ToolNames, namespace_spec
from treadle.tools.specs import function_spec, text

if TYPE_CHECKING:
    from treadle.agent.thread.thread_mcp import ThreadMcp, ThreadServer


# What is made of more than this takes longer than others should wait for.
SMALL_LISTS: Final = 256 * 1024


class McpToolset:
    def __init__(self, mcp: ThreadMcp) -> None:
        self._mcp = mcp
        self._version = mcp.version
        self._servers = {name: server for name, server in mcp.servers.items() if server.tools}
        self._names = ToolNames({name: [tool.name for tool in server.tools] for name, server in self._servers.items()})
        self._tools = {
            (name, tool.name): McpTool(server, tool) for name, server in self._servers.items() for tool in server.tools
        }
        self._own: tuple[Tool, ...] = ()
        if any(server.config.enabled for server in mcp.servers.values()):
            self._own = (ListResources(), ListResourceTemplates(), ReadResource())
        self._all: tuple[Raw, ...] | None = None  # of all servers, when they were offered to a model
        self._search: SearchTools | None = None

    def is_current(self, mcp: ThreadMcp) -> bool:
        return self._version == mcp.version

    async def specs(self, window: int, *, native: bool) -> tuple[Raw, ...]:
        """The specifications for a model with a context window of so many tokens. `native`: whether it knows the search
        of the Responses API. What that finds is in its answer; what the function finds is offered from then on."""
        own = tuple(tool.spec for tool in self._own)
        if self._all is None:
            offers = [(name, server.instructions, server.tools) for name, server in self._servers.items()]
            size = sum(len(bytes(tool.raw)) for _, _, tools in offers for tool in tools)

            def made() -> tuple[Raw, ...]:
                return tuple(namespace_spec(self._names, *offer) for offer in offers)

            self._all = await asyncio.to_thread(made) if size > SMALL_LISTS else made()
        if not too_many(self._all, window):
            return (*own, *self._all)
        search = self._searching()
        found = [
            FoundTool(server, self._tools[server, name].info)
            for server, name in self._mcp.found
            if (server, name) in self._tools
        ]
        spec = search.native_spec if native else search.spec
        return (*own, spec, *found_specs(self._names, found, search.instructions))

    def find(self, call: ToolCall) -> Tool | None:
        """The tool that a call means, whether the model was offered it in this request or not."""
        if call.free_text:
            return None
        target = self._names.find(call.namespace, call.name)
        if target is not None:
            return self._tools[target]
        if call.name == NAME and call.namespace is None and self._servers:
            return self._searching()
        return next((tool for tool in self._own if tool.answers(call) and call.namespace is None), None)

    def _searching(self) -> SearchTools:
        if self._search is None:
            self._search = SearchTools(self._mcp, self._names, self._servers)
        return self._search


class McpTool(Tool):
    """One tool of a server. For the model it is part of the specification of its server."""

    spec: Raw = Raw(b"")

    def __init__(self, server: ThreadServer, info: ToolInfo) -> None:
        self.server = server
        self.info = info
        self.name: str = info.name
        hints = info.annotations
        self.only_reads: bool = hints is not None and hints.read_only_hint is True
        self.may_destroy: bool = hints is None or hints.destructive_hint is not False
        # In the order that the model has written, where one call may see what another has done.
        self.exclusive: bool = not (self.only_reads or server.config.supports_parallel_tool_calls)
        self.domain: str = f"mcp {server.config.name}"

    async def run(self, call: ToolCall) -> Output:
        from treadle.agent.tools.mcp_calls import McpToolCall  # loaded with the first call

        return await McpToolCall(call, self.server, self.info).run()


# --- search -----------------------------------------------------------------------------------------------------------

# What a thread has found stays offered; the oldest give way.
MAX_FOUND: Final = 100


class SearchTools(Tool):
    """The search, in both of its forms: a plain function, so that every model and every wire API has it, and what the
    Responses API has for it."""

    name = NAME
    only_reads = True

    def __init__(self, mcp: ThreadMcp, names: ToolNames, servers: dict[str, ThreadServer]) -> None:
        self._mcp = mcp
        self._names = names
        self._index = ToolIndex({name: server.tools for name, server in servers.items()})
        self.instructions: dict[str, str | None] = {name: server.instructions for name, server in servers.items()}
        self.spec: Raw = search_spec(self.instructions)
        self.native_spec: Raw = search_spec(self.instructions, native=True)

    async def run(self, call: ToolCall) -> Output:
        given = call.arguments(SearchArguments)
        found = self._index.search(given.query, given.count)
        if call.kind == "tool_search_call":
            specs = found_specs(self._names, found, self.instructions, deferred=True)
            return [msgspec.json.decode(spec) for spec in specs]
        remembered = self._mcp.found
        for each in found:
            remembered.pop((each.server, each.tool.name), None)
            remembered[each.server, each.tool.name] = None
        while len(remembered) > MAX_FOUND:
            del remembered[next(iter(remembered))]
        return plain_answer(self._names, found)


# --- resources --------------------------------------------------------------------------------------------------------

_SERVER: Final = text("The server, by its name. Default: all of them.")
_CURSOR: Final = text("Where to go on: the `nextCursor` of the last answer. Only together with `server`.")


class ListArguments(Struct, frozen=True, kw_only=True):
    server: str | None = None
    cursor: str | None = None


class ReadArguments(Struct, frozen=True, kw_only=True):
    server: str
    uri: str


class ListResources(Tool):
    name = "list_mcp_resources"
    only_reads = True
    kind: ListKind = "resources"
    spec: Raw = function_spec(
        name,
        "Lists what MCP servers have to read: files, schemas, facts of an application. Prefer that to the web.",
        {"server": _SERVER, "cursor": _CURSOR},
    )

    async def run(self, call: ToolCall) -> Output:
        from treadle.agent.tools.mcp_calls import list_resources

        return await list_resources(call, call.arguments(ListArguments), self.kind)


class ListResourceTemplates(ListResources):
    name = "list_mcp_resource_templates"
    kind: ListKind = "resources/templates"
    spec: Raw = function_spec(
        name,
        "Lists the patterns of URIs that MCP servers can make something to read of.",
        {"server": _SERVER, "cursor": _CURSOR},
    )


class ReadResource(Tool):
    name = "read_mcp_resource"
    only_reads = True
    spec: Raw = function_spec(
        name,
        "Reads a resource of an MCP server.",
        {
            "server": text("The server, exactly as the list of resources names it."),
            "uri": text("The URI of the resource, as it is listed or made of a template."),
        },
        required=("server", "uri"),
    )

    async def run(self, call: ToolCall) -> Output:
        from treadle.agent.tools.mcp_calls import read_resource

        return await read_resource(call, call.arguments(ReadArguments))
