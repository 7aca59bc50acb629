"""What extends an agent: skills, hooks, MCP servers and plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Closed, Empty, JsonObject, NoParams, Open, Params, Unsigned32, Wire, Word


class SkillScope(Word):
    user = "user"
    repo = "repo"
    system = "system"
    admin = "admin"


class SkillToolDependency(Wire, frozen=True, kw_only=True):
    type: str
    value: str
    command: str | None = None
    description: str | None = None
    transport: str | None = None
    url: str | None = None


class SkillDependencies(Wire, frozen=True, kw_only=True):
    tools: tuple[SkillToolDependency, ...]


class SkillInterface(Wire, frozen=True, kw_only=True):
    brand_color: str | None = None
    default_prompt: str | None = None
    display_name: str | None = None
    icon_large: str | None = None
    icon_large_url: str | None = None
    icon_small: str | None = None
    icon_small_url: str | None = None
    short_description: str | None = None


class SkillMetadata(Wire, frozen=True, kw_only=True):
    description: str
    enabled: bool
    name: str
    path: str
    scope: Open[SkillScope]
    dependencies: SkillDependencies | UnsetType | None = UNSET
    interface: SkillInterface | None = None
    plugin_id: str | None = None
    short_description: str | UnsetType | None = UNSET


class SkillErrorInfo(Wire, frozen=True, kw_only=True):
    message: str
    path: str


class SkillsListEntry(Wire, frozen=True, kw_only=True):
    cwd: str
    errors: tuple[SkillErrorInfo, ...]
    skills: tuple[SkillMetadata, ...]


class SkillsListParams(Params, frozen=True, kw_only=True):
    cwds: tuple[str, ...] = ()
    force_reload: bool = False
    thread_id: str | None = None
    """The thread whose skills are meant, on whatever machine it works, in place of `cwds`. Ours alone."""


class SkillsListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[SkillsListEntry, ...]


class SkillsConfigWriteParams(Params, frozen=True, kw_only=True):
    enabled: bool
    name: str | None = None
    path: str | None = None


class SkillsConfigWriteResponse(Wire, frozen=True, kw_only=True):
    effective_enabled: bool


class SkillsExtraRootsSetParams(Params, frozen=True, kw_only=True):
    extra_roots: tuple[str, ...]


SkillsExtraRootsSetResponse = Empty


class SkillsChangedNotification(Wire, frozen=True, kw_only=True):
    pass


# --- hooks ---


class HookExecutionMode(Word):
    sync = "sync"
    async_ = "async"


class HookHandlerType(Word):
    command = "command"
    mcp_tool = "mcpTool"
    prompt = "prompt"
    agent = "agent"


class HookRunStatus(Word):
    running = "running"
    completed = "completed"
    failed = "failed"
    blocked = "blocked"
    stopped = "stopped"


class HookScope(Word):
    thread = "thread"
    turn = "turn"


class HookOutputEntryKind(Word):
    warning = "warning"
    stop = "stop"
    feedback = "feedback"
    context = "context"
    error = "error"


class HookEventName(Word):
    pre_model_request = "preModelRequest"
    post_model_request = "postModelRequest"
    pre_tool_use = "preToolUse"
    permission_request = "permissionRequest"
    post_tool_use = "postToolUse"
    pre_compact = "preCompact"
    post_compact = "postCompact"
    session_start = "sessionStart"
    session_end = "sessionEnd"
    user_prompt_submit = "userPromptSubmit"
    subagent_start = "subagentStart"
    subagent_stop = "subagentStop"
    stop = "stop"
    interrupt = "interrupt"


class HookSource(Word):
    system = "system"
    user = "user"
    project = "project"
    mdm = "mdm"
    session_flags = "sessionFlags"
    plugin = "plugin"
    cloud_requirements = "cloudRequirements"
    cloud_managed_config = "cloudManagedConfig"
    legacy_managed_config_file = "legacyManagedConfigFile"
    legacy_managed_config_mdm = "legacyManagedConfigMdm"
    unknown = "unknown"


class HookTrustStatus(Word):
    managed = "managed"
    untrusted = "untrusted"
    trusted = "trusted"
    modified = "modified"


class HookMetadata(Wire, frozen=True, kw_only=True):
    """`command` and `async_` belong to the handler type `command`, `server` and `tool` to `mcpTool`."""

    current_hash: str
    display_order: int
    enabled: bool
    event_name: Open[HookEventName]
    is_managed: bool
    key: str
    source: Open[HookSource]
    source_path: str
    timeout_sec: int
    trust_status: Open[HookTrustStatus]
    additional_context_limit: int | None = None
    environment_id: str | None = None
    matcher: str | None = None
    plugin_id: str | None = None
    status_message: str | None = None
    handler_type: Open[HookHandlerType]
    command: str | UnsetType = UNSET
    async_: bool | UnsetType = field(name="async", default=UNSET)
    server: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET


class HookErrorInfo(Wire, frozen=True, kw_only=True):
    message: str
    path: str


class HooksListEntry(Wire, frozen=True, kw_only=True):
    cwd: str
    errors: tuple[HookErrorInfo, ...]
    hooks: tuple[HookMetadata, ...]
    warnings: tuple[str, ...]


class HooksListParams(Params, frozen=True, kw_only=True):
    thread_id: str | None = None
    cwds: tuple[str, ...] = ()


class HooksListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[HooksListEntry, ...]


class HookOutputEntry(Wire, frozen=True, kw_only=True):
    kind: Open[HookOutputEntryKind]
    text: str


class HookRunSummary(Wire, frozen=True, kw_only=True):
    id: str
    display_order: int
    entries: tuple[HookOutputEntry, ...]
    event_name: Open[HookEventName]
    execution_mode: Open[HookExecutionMode]
    handler_type: Open[HookHandlerType]
    scope: Open[HookScope]
    source_path: str
    started_at: int
    status: Open[HookRunStatus]
    completed_at: int | None = None
    duration_ms: int | None = None
    source: Open[HookSource] = HookSource.unknown
    status_message: str | None = None


class HookStartedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    run: HookRunSummary
    turn_id: str | None = None


class HookCompletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    run: HookRunSummary
    turn_id: str | None = None


# --- MCP servers ---


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
    is_error: bool | UnsetType | None = UNSET
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
    error: str | UnsetType | None = UNSET
    login_id: str | None = None


class McpServerStatusUpdatedNotification(Wire, frozen=True, kw_only=True):
    name: str
    status: Open[McpServerStartupState]
    thread_id: str | None = None
    error: str | None = None
    failure_reason: Open[McpServerStartupFailureReason] | None = None


# --- plugins, and settings of other agents ---


class PluginListParams(Params, frozen=True, kw_only=True):
    cwds: tuple[str, ...] | None = None
    force_refetch: bool = False
    marketplace_kinds: tuple[str, ...] | None = None


class PluginListResponse(Wire, frozen=True, kw_only=True):
    marketplaces: tuple[JsonObject, ...]
    featured_plugin_ids: tuple[str, ...] = ()
    marketplace_load_errors: tuple[JsonObject, ...] = ()


class PluginInstalledParams(Params, frozen=True, kw_only=True):
    cwds: tuple[str, ...] | None = None
    install_suggestion_plugin_names: tuple[str, ...] | None = None


class PluginInstalledResponse(Wire, frozen=True, kw_only=True):
    marketplaces: tuple[JsonObject, ...]
    marketplace_load_errors: tuple[JsonObject, ...] = ()


class ExternalAgentConfigDetectParams(Params, frozen=True, kw_only=True):
    cwds: tuple[str, ...] | None = None
    include_home: bool = False
    max_session_age_days: Unsigned32 | None = None
    max_sessions: Unsigned32 | None = None
    migration_source: str | None = None
    source: str | None = None


class ExternalAgentConfigDetectResponse(Wire, frozen=True, kw_only=True):
    items: tuple[JsonObject, ...]
    connectors: tuple[JsonObject, ...] = ()
