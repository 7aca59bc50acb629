"""MCP servers of a configuration: `[mcp_servers.NAME]`, key by key, and each table as an `McpServerConfig`.

A table that cannot be used disables its server alone, and the `problem` says where and why. (Codex refuses the whole
file.) The module is loaded where such a table is; it starts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from treadle.config.file_settings import Text
from treadle.config.layers import KeyPath, Layers, join_key
from treadle.config.problems import ConfigWarning, kind_of
from treadle.llm.provider import FORBIDDEN_IN_HEADER, HEADER_NAME, is_http_url, shown_url
from treadle.secrets import is_secret, learn

ApprovalMode: TypeAlias = Literal["auto", "prompt", "writes", "approve"]
_Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=2**31)]
_Milliseconds: TypeAlias = Annotated[int, Meta(ge=1, le=2**41)]
_Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]

SECTION: Final = "mcp_servers"
STARTUP_TIMEOUT_S: Final = 30.0
TOOL_TIMEOUT_S: Final = 300.0


class EnvVar(Struct, frozen=True, kw_only=True):
    """A variable that is passed on to a server; `source` says whose: of this machine, or of where the server runs."""

    name: Text
    source: Literal["local", "remote"] = "local"


class OAuthTable(Struct, frozen=True, kw_only=True):
    """`[mcp_servers.NAME.oauth]`."""

    client_id: Text | None = None
    """The id that the server has given to this client. Without it, one is asked for at each login."""
    callback_port: _Port | None = None
    """The port of this machine to which the browser comes back. Without it, any free one."""


class McpToolTable(Struct, frozen=True, kw_only=True):
    """`[mcp_servers.NAME.tools.TOOL]`."""

    approval_mode: ApprovalMode | None = None
    """When somebody is asked before this tool runs; without it, as `default_tools_approval_mode` says."""


class McpServerTable(Struct, frozen=True, kw_only=True):
    """`[mcp_servers.NAME]`, as it is written; `docs/configuration.md` is made from it."""

    command: Text | None = None
    """The program of a server that is started and spoken to over its input and output."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = {}
    """Variables that it gets. Of the variables of this process it gets only `HOME`, `PATH` and the like."""
    env_vars: tuple[Text | EnvVar, ...] = ()
    """Names of further variables that are passed on to it: those of this machine, or with `source = "remote"` those of
    the machine of its `environment_id`."""
    cwd: Text | None = None
    """The folder that it starts in; without it, that of the thread, where the thread works in its environment."""
    url: Text | None = None
    """Where a server is that is reached over HTTP (streamable HTTP). A server has this or a `command`."""
    bearer_token_env_var: Text | None = None
    """The variable that holds the token for it."""
    http_headers: dict[str, str] = {}
    """More headers for it."""
    env_http_headers: dict[str, Text] = {}
    """More headers, whose values are in variables; one that is not set is left out."""
    http_headers_helper: Text | None = None
    """A command that prints more headers, as one JSON object."""
    auth: Literal["oauth", "chatgpt"] | None = None
    """How to log in to it: `oauth`. A login with ChatGPT, which Codex has, is not offered."""
    scopes: tuple[str, ...] | None = None
    """What a login asks for; without it, what the server says."""
    oauth: OAuthTable = OAuthTable()
    oauth_resource: Text | None = None
    """The resource that a login names, where it is not the `url`."""
    environment_id: Text = "local"
    """Where a `command` runs: on this machine, or in the environment of this name, outside of any sandbox."""
    enabled: bool = True
    """Whether it is used."""
    required: bool = False
    """Whether a thread that cannot have it is refused."""
    startup_timeout_sec: _Seconds | None = None
    """How long its start may take, in seconds: 30 where nothing is said."""
    startup_timeout_ms: _Milliseconds | None = None
    """The same in milliseconds; `startup_timeout_sec` goes before it."""
    tool_timeout_sec: _Seconds | None = None
    """How long one call may take, in seconds: 300 where nothing is said."""
    enabled_tools: tuple[str, ...] | None = None
    """The only tools of it that are offered, by their own names."""
    disabled_tools: tuple[str, ...] = ()
    """Tools of it that are not offered, also where `enabled_tools` has them."""
    default_tools_approval_mode: ApprovalMode = "auto"
    """When somebody is asked before a tool of it runs: `auto` as its annotations say, `writes` unless it says that it
    only reads, `prompt` always, `approve` never."""
    tools: dict[str, McpToolTable] = {}
    supports_parallel_tool_calls: bool = False
    """Whether several of its tools may run at a time. Those that only read may in any case."""
    share: bool = False
    """Whether all threads with the same settings share one process or connection, instead of one each. Only Treadle."""
    sampling: bool = False
    """Whether it may ask the thread's model for text, each time with your approval. Only Treadle."""


class McpServerConfig(McpServerTable, frozen=True, kw_only=True):
    """One configured server. What is not said has its default, except `enabled_tools`: None is all tools."""

    name: str
    problem: str | None = None
    """Why the table cannot be used, with file, line and column; `enabled` is false then."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"McpServerConfig({fields})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Arguments, variables, headers and the query of a URL may be secret."""
        where = ("command", self.command) if self.url is None else ("url", shown_url(self.url))
        return [("name", self.name), where, ("enabled", self.enabled), ("problem", self.problem)]

    @property
    def is_http(self) -> bool:
        return self.url is not None

    def allows(self, tool: str) -> bool:
        """Whether a tool of the server, by its own name, is offered."""
        return (self.enabled_tools is None or tool in self.enabled_tools) and tool not in self.disabled_tools

    def approval_of(self, tool: str) -> ApprovalMode:
        """When somebody is asked before a tool runs."""
        own = self.tools[tool].approval_mode if tool in self.tools else None
        return own or self.default_tools_approval_mode

    @property
    def startup_timeout_s(self) -> float:
        in_ms = STARTUP_TIMEOUT_S if self.startup_timeout_ms is None else self.startup_timeout_ms / 1000
        return self.startup_timeout_sec or in_ms

    @property
    def tool_timeout_s(self) -> float:
        return self.tool_timeout_sec or TOOL_TIMEOUT_S


_STDIO_KEYS: Final = ("args", "env", "env_vars", "cwd")
_HTTP_KEYS: Final = (
    *("bearer_token_env_var", "http_headers", "env_http_headers", "http_headers_helper", "auth", "scopes", "oauth"),
    "oauth_resource",
)
ALLOWED: Final[Mapping[Any, str]] = {
    Text | None: "a text that is not empty",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
    tuple[str, ...] | None: "a list of texts",
    tuple[Text | EnvVar, ...]: 'a list of names, or of tables `{ name = "NAME", source = "local" }`',
    dict[str, str]: "a table of texts",
    dict[str, Text]: "a table of names of variables",
    dict[str, McpToolTable]: "a table of tools, each with an `approval_mode`",
    OAuthTable: "a table with `client_id` and `callback_port`",
    Literal["oauth", "chatgpt"] | None: "`oauth` or `chatgpt`",
    Text: "a text that is not empty",
    ApprovalMode: "one of `auto`, `prompt`, `writes`, `approve`",
    ApprovalMode | None: "one of `auto`, `prompt`, `writes`, `approve`",
    _Seconds | None: "a number of seconds above 0",
    _Milliseconds | None: "a whole number from 1",
    _Port | None: "a whole number from 1 to 65535",
}
# Keys of Codex: one that its own reader ignores, and one for a feature of its own.
_IGNORED: Final = frozenset({"name", "omit_tools_from"})
_NO_TOKEN: Final = "a token in the file is not read; put it into a variable, and name that in bearer_token_env_var"


def read_mcp_servers(layers: Layers, tables: object) -> tuple[Mapping[str, McpServerConfig], list[ConfigWarning]]:
    """The servers of `[mcp_servers]` in their order, unusable ones too, and what is wrong with their tables."""
    if not isinstance(tables, Mapping):
        text = f"there are no MCP servers: found {kind_of(tables)}, allowed is a table of tables"
        return {}, [layers.warning((SECTION,), text)]
    servers: dict[str, McpServerConfig] = {}
    warnings: list[ConfigWarning] = []
    for name, table in tables.items():
        reading = _Reading()
        known = _read_table((SECTION, name), table, McpServerTable, reading)
        if not reading.problems:
            reading.problems.extend(_wrong_together((SECTION, name), known))
        for path, keys in reading.unknown:
            warnings.append(layers.unknown(path, keys))
        for path, problem in reading.problems:
            invalid = layers.error(path, problem)
            text = f"the MCP server `{name}` cannot be used: {join_key(path)}: {problem}"
            warnings.append(structs.replace(layers.warning(path, text), invalid=invalid.problems[0]))
        if reading.problems:
            said = "; ".join(str(layers.error(path, problem)) for path, problem in reading.problems)
            servers[name] = McpServerConfig(name=name, enabled=False, problem=said)
        else:
            servers[name] = McpServerConfig(name=name, **known)
            learn(_secrets(servers[name]))
    return servers, warnings


def table_problems(name: str, table: object) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with the table of a server that a program passes: keys that are not known, too. A table that says
    not where its server is changes one of the file.
    """
    reading = _Reading()
    known = _read_table((SECTION, name), table, McpServerTable, reading)
    yield from reading.problems
    for path, keys in reading.unknown:
        near = get_close_matches(path[-1], keys, 1, 0.7)
        yield path, "it is not known" + (f"; did you mean {near[0]!r}?" if near else "")
    if not reading.problems and ("url" in known or "command" in known):
        yield from _wrong_together((SECTION, name), known)


class _Reading(Struct):
    problems: list[tuple[KeyPath, str]] = []
    unknown: list[tuple[KeyPath, Collection[str]]] = []


def _read_table(path: KeyPath, table: object, wanted: type[Struct], reading: _Reading) -> dict[str, Any]:
    """The values of a table by the fields of its struct. No value gets into a problem: it may be secret."""
    if not isinstance(table, Mapping):
        reading.problems.append((path, f"found {kind_of(table)}, allowed is a table"))
        return {}
    types = {field.name: field.type for field in structs.fields(wanted)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        place = (*path, key)
        if key == "bearer_token" and wanted is McpServerTable:
            reading.problems.append((place, _NO_TOKEN))
        elif key not in types:
            if key not in _IGNORED:
                reading.unknown.append((place, types))
        elif types[key] is OAuthTable:
            values[key] = OAuthTable(**_read_table(place, value, OAuthTable, reading))
        elif key == "tools" and isinstance(value, Mapping):
            read = {tool: _read_table((*place, tool), below, McpToolTable, reading) for tool, below in value.items()}
            values[key] = {tool: McpToolTable(**fields) for tool, fields in read.items()}
        else:
            try:
                values[key] = msgspec.convert(value, types[key])
            except msgspec.ValidationError:
                reading.problems.append((place, f"found {kind_of(value)}, allowed is {ALLOWED[types[key]]}"))
    return values


def _wrong_together(path: KeyPath, table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """What has the right types and cannot be used all the same."""
    url, command = table.get("url"), table.get("command")
    if url is not None and command is not None:
        yield (*path, "url"), "a server has a command or a url; remove one of them"
        return
    if url is None and command is None:
        if table.get("enabled", True):  # what switches off a server that is not there does no harm
            yield path, "it has neither a command nor a url; add one of them"
        return
    others, kind = (_STDIO_KEYS, "url") if url is not None else (_HTTP_KEYS, "command")
    for key in others:
        if key in table:
            yield (*path, key), f"a server with a {kind} cannot have it; remove it"
    if url is not None and table.get("environment_id", "local") != "local":
        yield (*path, "environment_id"), "a server with a url is called from this machine; remove it"
    if url is not None and not is_http_url(url):
        yield (*path, "url"), "it is no http or https URL; write it as `https://HOST/mcp` or `http://HOST:PORT/mcp`"
    if table.get("auth") == "chatgpt":
        yield (*path, "auth"), "there is no login with ChatGPT here; use `oauth`, or a token in bearer_token_env_var"
    for key in ("http_headers", "env_http_headers"):
        for name, value in table.get(key, {}).items():
            if not HEADER_NAME.fullmatch(name) or FORBIDDEN_IN_HEADER.search(value):
                yield (*path, key), f"{name!r} is no header of HTTP: there are characters in it that are not allowed"
    variables = [("env", name) for name in table.get("env", ())]
    variables += [("env_vars", one.name if isinstance(one, EnvVar) else one) for one in table.get("env_vars", ())]
    for key, name in variables:
        if not name or "=" in name or "\0" in name:
            yield (*path, key), f"{name!r} is no name of a variable"
    texts = (command or "", *table.get("args", ()), table.get("cwd") or "", *table.get("env", {}).values())
    if any("\0" in text for text in texts):
        yield path, "there is a NUL character in it, which no program can be given"


def _secrets(server: McpServerConfig) -> Iterator[str]:
    """What logs must not show: all headers, and variables whose names or values look like secrets."""
    for value in server.http_headers.values():
        yield value
        yield value.partition(" ")[2]  # of `Bearer …`, also the rest alone
    yield from (value for name, value in server.env.items() if is_secret(name, value))
