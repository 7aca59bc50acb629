"""Hooks: which were found (hooks/list), and what they did."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Open, Params, Wire, Word


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
