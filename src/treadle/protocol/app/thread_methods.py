"""Params and results of thread/*: start, resume, fork, list, read and so on; history is in `thread_history`."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Closed, Empty, JsonObject, Open, OrUnknown, Params, Unsigned32, Wire, Word
from treadle.protocol.app.dynamic_tools import DynamicToolSpec
from treadle.protocol.app.settings import (
    ActivePermissionProfile,
    ApprovalsReviewer,
    AskForApproval,
    CollaborationMode,
    KnownApproval,
    Personality,
    ReasoningEffort,
    SandboxMode,
    SandboxPolicy,
    TurnEnvironmentParams,
)
from treadle.protocol.app.threads import Thread


class ThreadStartSource(Word):
    startup = "startup"
    clear = "clear"


class ThreadSortKey(Word):
    created_at = "created_at"
    updated_at = "updated_at"
    recency_at = "recency_at"
    section_position = "section_position"


class ThreadSourceKind(Word):
    cli = "cli"
    vscode = "vscode"
    exec = "exec"
    app_server = "appServer"
    sub_agent = "subAgent"
    sub_agent_review = "subAgentReview"
    sub_agent_compact = "subAgentCompact"
    sub_agent_thread_spawn = "subAgentThreadSpawn"
    sub_agent_other = "subAgentOther"
    unknown = "unknown"


class ThreadUnsubscribeStatus(Word):
    not_loaded = "notLoaded"
    not_subscribed = "notSubscribed"
    unsubscribed = "unsubscribed"


class SortDirection(Word):
    asc = "asc"
    desc = "desc"


class ThreadStartParams(Params, frozen=True, kw_only=True):
    """`sandbox` is a mode, its policy is in the result. A null `service_tier` clears the configured one."""

    _hidden: ClassVar = ("config",)

    approval_policy: AskForApproval | None = None
    approvals_reviewer: Closed[ApprovalsReviewer] | None = None
    base_instructions: str | None = None
    config: JsonObject | None = None
    cwd: str | None = None
    developer_instructions: str | None = None
    ephemeral: bool | None = None
    model: str | None = None
    model_provider: str | None = None
    personality: Closed[Personality] | None = None
    sandbox: Closed[SandboxMode] | None = None
    service_name: str | None = None
    service_tier: str | UnsetType | None = UNSET
    session_start_source: Closed[ThreadStartSource] | None = None
    thread_source: str | None = None
    dynamic_tools: tuple[DynamicToolSpec, ...] | None = None
    environments: tuple[TurnEnvironmentParams, ...] | None = None
    """Where commands run. Experimental in Codex. An empty list: nowhere, so that there are none."""
    permissions: str | None = None
    """The id of a permission profile, instead of `sandbox`. Experimental in Codex, as in the others that have it."""
    runtime_workspace_roots: tuple[str, ...] | None = None
    """What `:workspace_roots` and workspace-write let commands write, in place of `cwd`. Experimental in Codex."""


class ThreadStartResponse(Wire, frozen=True, kw_only=True):
    approval_policy: OrUnknown[KnownApproval | str]
    approvals_reviewer: Open[ApprovalsReviewer]
    cwd: str
    model: str
    model_provider: str
    sandbox: OrUnknown[SandboxPolicy]
    thread: Thread
    active_permission_profile: ActivePermissionProfile | None = None
    disabled_plugin_ids: tuple[str, ...] = ()
    instruction_sources: tuple[str, ...] = ()
    reasoning_effort: Open[ReasoningEffort] | None = None
    runtime_workspace_roots: tuple[str, ...] = ()
    service_tier: str | None = None


class ThreadResumeParams(Params, frozen=True, kw_only=True):
    _hidden: ClassVar = ("config",)

    thread_id: str
    approval_policy: AskForApproval | None = None
    approvals_reviewer: Closed[ApprovalsReviewer] | None = None
    base_instructions: str | None = None
    config: JsonObject | None = None
    cwd: str | None = None
    developer_instructions: str | None = None
    exclude_turns: bool = False
    model: str | None = None
    model_provider: str | None = None
    personality: Closed[Personality] | None = None
    sandbox: Closed[SandboxMode] | None = None
    service_tier: str | UnsetType | None = UNSET
    permissions: str | None = None
    runtime_workspace_roots: tuple[str, ...] | None = None


class ThreadResumeResponse(Wire, frozen=True, kw_only=True):
    approval_policy: OrUnknown[KnownApproval | str]
    approvals_reviewer: Open[ApprovalsReviewer]
    cwd: str
    model: str
    model_provider: str
    sandbox: OrUnknown[SandboxPolicy]
    thread: Thread
    active_permission_profile: ActivePermissionProfile | None = None
    collaboration_mode: CollaborationMode | None = None
    disabled_plugin_ids: tuple[str, ...] = ()
    instruction_sources: tuple[str, ...] = ()
    items_backwards_cursor: str | None = None
    reasoning_effort: Open[ReasoningEffort] | None = None
    runtime_workspace_roots: tuple[str, ...] = ()
    service_tier: str | None = None
    turns_backwards_cursor: str | None = None


class ThreadForkParams(Params, frozen=True, kw_only=True):
    _hidden: ClassVar = ("config",)

    thread_id: str
    approval_policy: AskForApproval | None = None
    approvals_reviewer: Closed[ApprovalsReviewer] | None = None
    base_instructions: str | None = None
    config: JsonObject | None = None
    cwd: str | None = None
    developer_instructions: str | None = None
    ephemeral: bool = False
    exclude_turns: bool = False
    last_turn_id: str | None = None
    model: str | None = None
    model_provider: str | None = None
    sandbox: Closed[SandboxMode] | None = None
    service_tier: str | UnsetType | None = UNSET
    thread_source: str | None = None
    permissions: str | None = None
    runtime_workspace_roots: tuple[str, ...] | None = None


class ThreadForkResponse(Wire, frozen=True, kw_only=True):
    approval_policy: OrUnknown[KnownApproval | str]
    approvals_reviewer: Open[ApprovalsReviewer]
    cwd: str
    model: str
    model_provider: str
    sandbox: OrUnknown[SandboxPolicy]
    thread: Thread
    active_permission_profile: ActivePermissionProfile | None = None
    disabled_plugin_ids: tuple[str, ...] = ()
    instruction_sources: tuple[str, ...] = ()
    reasoning_effort: Open[ReasoningEffort] | None = None
    runtime_workspace_roots: tuple[str, ...] = ()
    service_tier: str | None = None


class ThreadReadParams(Params, frozen=True, kw_only=True):
    thread_id: str
    include_turns: bool = False


class ThreadReadResponse(Wire, frozen=True, kw_only=True):
    thread: Thread


class ThreadListParams(Params, frozen=True, kw_only=True):
    archived: bool | None = None
    cursor: str | None = None
    cwd: str | tuple[str, ...] | None = None
    excluded_thread_ids: tuple[str, ...] | None = None
    limit: Unsigned32 | None = None
    model_providers: tuple[str, ...] | None = None
    originators: tuple[str, ...] | None = None
    search_term: str | None = None
    section_id: str | None = None
    sort_direction: Closed[SortDirection] | None = None
    sort_key: Closed[ThreadSortKey] | None = None
    source_kinds: tuple[Closed[ThreadSourceKind], ...] | None = None
    use_state_db_only: bool = False


class ThreadListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[Thread, ...]
    backwards_cursor: str | None = None
    next_cursor: str | None = None


class ThreadLoadedListParams(Params, frozen=True, kw_only=True):
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ThreadLoadedListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[str, ...]
    next_cursor: str | None = None


class ThreadArchiveParams(Params, frozen=True, kw_only=True):
    thread_id: str


ThreadArchiveResponse = Empty


class ThreadUnarchiveParams(Params, frozen=True, kw_only=True):
    thread_id: str


class ThreadUnarchiveResponse(Wire, frozen=True, kw_only=True):
    thread: Thread


class ThreadDeleteParams(Params, frozen=True, kw_only=True):
    thread_id: str


ThreadDeleteResponse = Empty


class ThreadUnsubscribeParams(Params, frozen=True, kw_only=True):
    thread_id: str


class ThreadUnsubscribeResponse(Wire, frozen=True, kw_only=True):
    status: Open[ThreadUnsubscribeStatus]


class ThreadSetNameParams(Params, frozen=True, kw_only=True):
    thread_id: str
    name: str


ThreadSetNameResponse = Empty


class ThreadMetadataGitInfoUpdateParams(Params, frozen=True, kw_only=True):
    """What is left out stays, null clears."""

    branch: str | UnsetType | None = UNSET
    origin_url: str | UnsetType | None = UNSET
    sha: str | UnsetType | None = UNSET


class ThreadMetadataUpdateParams(Params, frozen=True, kw_only=True):
    thread_id: str
    git_info: ThreadMetadataGitInfoUpdateParams | None = None


class ThreadMetadataUpdateResponse(Wire, frozen=True, kw_only=True):
    thread: Thread


class ThreadCompactStartParams(Params, frozen=True, kw_only=True):
    thread_id: str


ThreadCompactStartResponse = Empty


class ThreadShellCommandParams(Params, frozen=True, kw_only=True):
    thread_id: str
    command: str
    timeout_ms: int | None = None


ThreadShellCommandResponse = Empty


class ThreadApproveGuardianDeniedActionParams(Params, frozen=True, kw_only=True):
    """`event` is what the client was told of the denial, of which `id` counts: that of the review."""

    thread_id: str
    event: Any


ThreadApproveGuardianDeniedActionResponse = Empty
