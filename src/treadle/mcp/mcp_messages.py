"""The messages of MCP that we read and write, as structs, and the errors of a server.

What a server sends is read as leniently as it can be used: unknown members are ignored, and what has to be passed on as
it came is kept as `raw`. One tool that cannot be read does not cost the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from treadle.errors import TreadleError

PROTOCOL_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions that begin with a handshake, the newest first, which is the one that we offer. For tools, resources and
prompts the old ones are the same, and many published servers speak them. (2026-07-28 has no handshake; servers that
speak it speak these too.)"""


McpErrorKind: TypeAlias = Literal[
    "start", "timeout", "closed", "rpc", "authentication", "scope", "protocol", "disabled"
]


class McpError(TreadleError):
    """A server could not be started or asked. `kind` says what to make of it; `code` and `data` are the server's own,
    for `rpc`."""

    def __init__(self, kind: McpErrorKind, message: str, *, code: int = 0, data: Any = None) -> None:
        super().__init__(message)
        self.kind: McpErrorKind = kind
        self.message = message
        self.code = code
        self.data = data


class McpCallError(McpError):
    """A call has no result; the message is for the model and for people, `reason` what the server itself has said."""

    def __init__(self, error: McpError, message: str) -> None:
        super().__init__(error.kind, message, code=error.code, data=error.data)
        self.reason: str = error.message


class SessionLost(McpError):
    """The server does not know our session any more, and has not looked at the request: begin a new one, repeat it."""

    def __init__(self) -> None:
        super().__init__("closed", "the server has forgotten the session")


class _Wire(Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class _Sent(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Cancelled(Struct, frozen=True, rename="camel"):
    """The params of `notifications/cancelled`, from either side."""

    request_id: int | str


class McpClientInfo(_Sent, frozen=True, kw_only=True):
    """The client as servers know it: name and version."""

    name: str
    version: str
    title: str | None = None


class McpInitializeResult(_Wire, frozen=True, kw_only=True):
    protocol_version: str
    capabilities: Mapping[str, Any] = {}
    server_info: Mapping[str, Any] = {}
    instructions: str | None = None

    def has(self, *path: str) -> bool:
        """Whether the server has a capability, such as `tools`, `listChanged`."""
        found: Any = self.capabilities
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found is not None and found is not False


class ToolAnnotations(_Wire, frozen=True, kw_only=True):
    """What a server says of a tool, if it says so: nobody has checked it."""

    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolInfo(_Wire, frozen=True, kw_only=True):
    """A tool of a server. `raw` is all that the server said of it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Raw = Raw(b"{}")
    annotations: ToolAnnotations | None = None
    raw: Raw = Raw(b"{}")


class _Tool(_Wire, frozen=True, kw_only=True):
    """A tool as it is sent; what only describes it may be of any type."""

    name: str
    title: Any = None
    description: Any = None
    input_schema: Raw = Raw(b"{}")
    annotations: Raw = Raw(b"null")


def read_tool(raw: Raw) -> ToolInfo:
    """Raises `msgspec.ValidationError` for one that cannot be called: without a name, or whose schema is no object.

    Annotations of wrong types count as none: then a call is asked about.
    """
    tool = msgspec.json.decode(raw, type=_Tool)
    annotations: ToolAnnotations | None = None
    with suppress(msgspec.ValidationError):
        annotations = msgspec.json.decode(tool.annotations, type=ToolAnnotations | None)
    msgspec.json.decode(tool.input_schema, type=dict[str, Raw])
    if not tool.name:
        raise msgspec.ValidationError("the name is empty")
    return ToolInfo(
        name=tool.name,
        title=tool.title if isinstance(tool.title, str) else None,
        description=tool.description if isinstance(tool.description, str) else None,
        input_schema=tool.input_schema.copy(),
        annotations=annotations,
        raw=raw.copy(),
    )


ListKind: TypeAlias = Literal["resources", "resources/templates", "prompts"]
"""What servers list beside tools, as it is called in the names of methods."""


class McpPage(_Wire, frozen=True, kw_only=True):
    """A page of a list of tools, resources, templates or prompts."""

    tools: tuple[Raw, ...] = ()
    resources: tuple[Raw, ...] = ()
    resource_templates: tuple[Raw, ...] = ()
    prompts: tuple[Raw, ...] = ()
    next_cursor: str | None = None

    @property
    def entries(self) -> tuple[Raw, ...]:
        """What is listed, whichever of these it is."""
        return self.tools or self.resources or self.resource_templates or self.prompts


class CallToolResult(_Wire, frozen=True, kw_only=True):
    content: tuple[Any, ...] = ()
    structured_content: Any = None
    is_error: bool | None = None
    """None where the server has left it out."""
    meta: Any = field(name="_meta", default=None)


class ReadResourceResult(_Wire, frozen=True, kw_only=True):
    contents: tuple[Any, ...] = ()


class GetPromptResult(_Wire, frozen=True, kw_only=True):
    description: str | None = None
    messages: tuple[Any, ...] = ()


class McpProgress(_Wire, frozen=True, kw_only=True):
    progress_token: int | str
    progress: float = 0
    total: float | None = None
    message: str | None = None


class LogParams(_Wire, frozen=True, kw_only=True):
    level: str = "info"
    logger: str | None = None
    data: Any = None


class ElicitParams(_Wire, frozen=True, kw_only=True):
    """A server asks the user: to fill in a form, or to look at a page."""

    message: str
    mode: Literal["form", "url"] = "form"
    requested_schema: Any = None
    url: str | None = None
    elicitation_id: str | None = None
    meta: Any = field(name="_meta", default=None)


class ElicitResult(_Sent, frozen=True, kw_only=True):
    action: Literal["accept", "decline", "cancel"]
    content: Any = None
    meta: Any = field(name="_meta", default=None)


class SamplingParams(_Wire, frozen=True, kw_only=True):
    """A server asks for text of a model. What else it would like, such as a temperature, is up to us."""

    messages: tuple[Any, ...]
    max_tokens: int
    system_prompt: str | None = None


class SamplingResult(_Sent, frozen=True, kw_only=True):
    role: Literal["assistant", "user"]
    content: Any
    model: str
    stop_reason: str | None = None


class Root(_Sent, frozen=True, kw_only=True):
    """A folder that a server may work in, as a `file://` URI."""

    uri: str
    name: str | None = None


class RootsResult(Struct, frozen=True, kw_only=True):
    roots: tuple[Root, ...]
