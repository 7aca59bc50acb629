"""Hooks: which were found (hooks/list), and what they did."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Open, Params, Wire

HookExecutionMode = Literal["sync", "async"]
HookHandlerType = Literal["command", "mcpTool", "prompt", "agent"]
HookRunStatus = Literal["running", "completed", "failed", "blocked", "stopped"]
HookScope = Literal["thread", "turn"]
HookOutputEntryKind = Literal["warning", "stop", "feedback", "context", "error"]
HookEventName = Literal[
    "preModelRequest",
    "postModelRequest",
    "preToolUse",
    "permissionRequest",
    "postToolUse",
    "preCompact",
    "postCompact",
    "sessionStart",
    "sessionEnd",
    "userPromptSubmit",
    "subagentStart",
    "subagentStop",
    "stop",
    "interrupt",
]
HookSource = Literal[
    "system",
    "user",
    "project",
    "mdm",
    "sessionFlags",
    "plugin",
    "cloudRequirements",
    "cloudManagedConfig",
    "legacyManagedConfigFile",
    "legacyManagedConfigMdm",
    "unknown",
]
HookTrustStatus = Literal["managed", "untrusted", "trusted", "modified"]


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
    source: Open[HookSource] = "unknown"
    status_message: str | None = None


class HookStartedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    run: HookRunSummary
    turn_id: str | None = None


class HookCompletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    run: HookRunSummary
    turn_id: str | None = None
