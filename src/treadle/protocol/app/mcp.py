"""MCP servers: their state, tools and resources, direct calls, and logging in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Closed, Empty, NoParams, Open, Params, Unsigned32, Wire, Word


class McpAuthStatus(Word):
    unknown = "unknown"
    unsupported = "unsupported"
    not_logged_in = "notLoggedIn"
    bearer_token = "bearerToken"
    o_auth = "oAuth"


class McpServerConnectionStatus(Word):
    not_started = "notStarted"
    starting = "starting"
    connected = "connected"
    authentication_required = "authenticationRequired"
    failed = "failed"
    cancelled = "cancelled"
    disabled = "disabled"


class McpServerStatusDetail(Word):
    full = "full"
    tools_and_auth_only = "toolsAndAuthOnly"


class McpServerOauthClientRegistration(Word):
    auto = "auto"
    cimd = "cimd"
    dcr = "dcr"


McpServerStartupFailureReason = Literal["reauthenticationRequired"]


class McpServerStartupState(Word):
    starting = "starting"
    ready = "ready"
    failed = "failed"
    cancelled = "cancelled"


class McpServerInfo(Wire, frozen=True, kw_only=True):
    name: str
    version: str
    description: str | None = None
    icons: tuple[Any, ...] | None = None
    title: str | None = None
    website_url: str | None = None


class Resource(Wire, frozen=True, kw_only=True):
    name: str
    uri: str
    meta: Any | UnsetType = field(name="_meta", default=UNSET)
    annotations: Any | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    icons: tuple[Any, ...] | UnsetType | None = UNSET
    mime_type: str | UnsetType | None = UNSET
    size: int | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET


class ResourceTemplate(Wire, frozen=True, kw_only=True):
    name: str
    uri_template: str
    annotations: Any | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    mime_type: str | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET


class Tool(Wire, frozen=True, kw_only=True):
    input_schema: Any
    name: str
    meta: Any | UnsetType = field(name="_meta", default=UNSET)
    annotations: Any | UnsetType = UNSET
    description: str | None = None
    icons: tuple[Any, ...] | UnsetType | None = UNSET
    output_schema: Any | UnsetType = UNSET
    title: str | UnsetType | None = UNSET


class McpServerStatus(Wire, frozen=True, kw_only=True):
    auth_status: Open[McpAuthStatus]
    name: str
    resource_templates: tuple[ResourceTemplate, ...]
    resources: tuple[Resource, ...]
    tools: Mapping[str, Tool]
    http_origin: str | None = None
    plugin_id: str | None = None
    runtime_status: Open[McpServerConnectionStatus] | None = None
    server_capabilities: Any = None
    server_info: McpServerInfo | None = None
    tool_list_meta: Any = None
    tools_error: str | None = None


class ListMcpServerStatusParams(Params, frozen=True, kw_only=True):
    thread_id: str | None = None
    cursor: str | None = None
    detail: Closed[McpServerStatusDetail] | None = None
    limit: Unsigned32 | None = None
    server_name: str | None = None


class ListMcpServerStatusResponse(Wire, frozen=True, kw_only=True):
    data: tuple[McpServerStatus, ...]
    next_cursor: str | None = None


class McpResourceReadTarget(Wire, frozen=True, kw_only=True):
    connector_id: str
    link_id: str | None


class McpResourceReadParams(Params, frozen=True, kw_only=True):
    server: str
    uri: str
    thread_id: str | None = None
    connector_id: str | None = None
    origin_call_id: str | None = None
    target: McpResourceReadTarget | None = None


class ResourceContent(Wire, frozen=True, kw_only=True):
    """`text`, or `blob` as base64 text: one of the two is there."""

    uri: str
    mime_type: str | UnsetType | None = UNSET
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    meta: Any | UnsetType = field(name="_meta", default=UNSET)


class McpResourceReadResponse(Wire, frozen=True, kw_only=True):
    contents: tuple[ResourceContent, ...]
    origin_call_id: str | None = None


class McpServerToolCallParams(Params, frozen=True, kw_only=True):
    thread_id: str
    server: str
    tool: str
    meta: Any = field(name="_meta", default=None)
    arguments: Any = None


class McpServerToolCallResponse(Wire, frozen=True, kw_only=True):
    content: tuple[Any, ...]
    meta: Any | UnsetType = field(name="_meta", default=UNSET)
    is_error: bool | None = None
    structured_content: Any | UnsetType = UNSET


class McpServerOauthLoginParams(Params, frozen=True, kw_only=True):
    name: str
    thread_id: str | None = None
    client_registration: Closed[McpServerOauthClientRegistration] | None = None
    scopes: tuple[str, ...] | None = None
    timeout_secs: int | None = None


class McpServerOauthLoginResponse(Wire, frozen=True, kw_only=True):
    authorization_url: str
    login_id: str | None = None


McpServerRefreshParams = NoParams


McpServerRefreshResponse = Empty


class McpServerOauthLoginCompletedNotification(Wire, frozen=True, kw_only=True):
    name: str
    success: bool
    thread_id: str | None = None
    error: str | None = None
    login_id: str | None = None


class McpServerStatusUpdatedNotification(Wire, frozen=True, kw_only=True):
    name: str
    status: Open[McpServerStartupState]
    thread_id: str | None = None
    error: str | None = None
    failure_reason: Open[McpServerStartupFailureReason] | None = None
