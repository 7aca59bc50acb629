"""Params and results of thread/*: start, resume, fork, list, read and so on, with goals, queue, background terminals
and sections. Those about the history of a thread are in `thread_history`."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import (
    Closed,
    Dollars,
    Empty,
    JsonObject,
    Open,
    OrUnknown,
    Params,
    Tokens,
    Unsigned32,
    Wire,
    Word,
)
from treadle.protocol.app.item_parts import DynamicToolSpec, UserInput
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
from treadle.protocol.app.threads import Thread, ThreadGoal, ThreadGoalStatus, ThreadSection, ThreadSectionAppearance
from treadle.protocol.app.turns import Turn


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


class _Opening(Params, frozen=True, kw_only=True):
    """What a thread is started, resumed and forked with."""

    _hidden: ClassVar = ("config",)

    approval_policy: AskForApproval | None = None
    approvals_reviewer: Closed[ApprovalsReviewer] | None = None
    base_instructions: str | None = None
    config: JsonObject | None = None
    cwd: str | None = None
    developer_instructions: str | None = None
    model: str | None = None
    model_provider: str | None = None
    sandbox: Closed[SandboxMode] | None = None
    """A mode; its policy is in the result."""
    service_tier: str | UnsetType | None = UNSET
    """Null clears the configured one."""
    permissions: str | None = None
    """The id of a permission profile, instead of `sandbox`. Experimental in Codex."""
    runtime_workspace_roots: tuple[str, ...] | None = None
    """What `:workspace_roots` and workspace-write let commands write, in place of `cwd`. Experimental in Codex."""
    max_thread_tokens: Tokens | UnsetType | None = UNSET
    """What the thread may use in all its turns, with its sub-agents; null is what the configuration says. Ours alone,
    as the next."""
    max_thread_cost_usd: Dollars | UnsetType | None = UNSET


class _Opened(Wire, frozen=True, kw_only=True):
    """A thread that was started, resumed or forked, and the settings that it has."""

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


class ThreadStartParams(_Opening, frozen=True, kw_only=True):
    ephemeral: bool | None = None
    personality: Closed[Personality] | None = None
    service_name: str | None = None
    session_start_source: Closed[ThreadStartSource] | None = None
    thread_source: str | None = None
    dynamic_tools: tuple[DynamicToolSpec, ...] | None = None
    environments: tuple[TurnEnvironmentParams, ...] | None = None
    """Where commands run. Experimental in Codex. An empty list: nowhere, so that there are none."""


class ThreadStartResponse(_Opened, frozen=True, kw_only=True):
    pass


class ThreadResumeParams(_Opening, frozen=True, kw_only=True):
    thread_id: str
    exclude_turns: bool = False
    personality: Closed[Personality] | None = None


class ThreadResumeResponse(_Opened, frozen=True, kw_only=True):
    collaboration_mode: CollaborationMode | None = None
    items_backwards_cursor: str | None = None
    turns_backwards_cursor: str | None = None


class ThreadForkParams(_Opening, frozen=True, kw_only=True):
    thread_id: str
    ephemeral: bool = False
    exclude_turns: bool = False
    last_turn_id: str | None = None
    thread_source: str | None = None


class ThreadForkResponse(_Opened, frozen=True, kw_only=True):
    pass


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
    parent_thread_id: str | None = None
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
    """`event` is the notification of the denial, of which `id` counts: that of the review."""

    thread_id: str
    event: Any


ThreadApproveGuardianDeniedActionResponse = Empty


# --- goals ---


class ThreadGoalMutationOrigin(Word):
    user = "user"
    automatic = "automatic"


class ThreadGoalSetParams(Params, frozen=True, kw_only=True):
    """What is left out stays; null takes the budget away."""

    thread_id: str
    objective: str | None = None
    origin: Closed[ThreadGoalMutationOrigin] | None = None
    status: Closed[ThreadGoalStatus] | None = None
    token_budget: int | UnsetType | None = UNSET


class ThreadGoalSetResponse(Wire, frozen=True, kw_only=True):
    goal: ThreadGoal


class ThreadGoalGetParams(Params, frozen=True, kw_only=True):
    thread_id: str


class ThreadGoalGetResponse(Wire, frozen=True, kw_only=True):
    goal: ThreadGoal | None = None


class ThreadGoalClearParams(Params, frozen=True, kw_only=True):
    thread_id: str
    origin: Closed[ThreadGoalMutationOrigin] | None = None


class ThreadGoalClearResponse(Wire, frozen=True, kw_only=True):
    cleared: bool


# --- queue: messages that wait for the turn of their thread to end ---


class QueuedSubmission(Wire, frozen=True, kw_only=True):
    id: str
    client_user_message_id: str
    input: tuple[OrUnknown[UserInput], ...]


class ThreadQueueAddParams(Params, frozen=True, kw_only=True):
    thread_id: str
    client_user_message_id: str
    input: tuple[UserInput, ...]


class ThreadQueueAddResponse(Wire, frozen=True, kw_only=True):
    queued_submission: QueuedSubmission


class ThreadQueueListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ThreadQueueListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[QueuedSubmission, ...]
    next_cursor: str | None = None


class ThreadQueueUpdateParams(Params, frozen=True, kw_only=True):
    thread_id: str
    queued_submission_id: str
    input: tuple[UserInput, ...]


class ThreadQueueUpdateResponse(Wire, frozen=True, kw_only=True):
    queued_submission: QueuedSubmission


class ThreadQueueDeleteParams(Params, frozen=True, kw_only=True):
    thread_id: str
    queued_submission_id: str


class ThreadQueueDeleteResponse(Wire, frozen=True, kw_only=True):
    deleted: bool


class ThreadQueueReorderParams(Params, frozen=True, kw_only=True):
    """`queued_submission_ids` are all that wait, in their new order."""

    thread_id: str
    queued_submission_ids: tuple[str, ...]


ThreadQueueReorderResponse = Empty


class ThreadQueueStartParams(Params, frozen=True, kw_only=True):
    """Without an id the first one is sent."""

    thread_id: str
    queued_submission_id: str | None = None


class ThreadQueueStartResponse(Wire, frozen=True, kw_only=True):
    turn: Turn


class ThreadQueueChangedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


# --- background terminals: commands that run for a thread ---


class ThreadBackgroundTerminal(Wire, frozen=True, kw_only=True):
    item_id: str
    process_id: str
    command: str
    cwd: str
    os_pid: int | None = None
    cpu_percent: float | None = None
    rss_kb: int | None = None


class ThreadBackgroundTerminalsListParams(Params, frozen=True, kw_only=True):
    thread_id: str
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ThreadBackgroundTerminalsListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ThreadBackgroundTerminal, ...]
    next_cursor: str | None = None


class ThreadBackgroundTerminalsCleanParams(Params, frozen=True, kw_only=True):
    thread_id: str


ThreadBackgroundTerminalsCleanResponse = Empty


class ThreadBackgroundTerminalsTerminateParams(Params, frozen=True, kw_only=True):
    thread_id: str
    process_id: str


class ThreadBackgroundTerminalsTerminateResponse(Wire, frozen=True, kw_only=True):
    terminated: bool


# --- sections: named groups of threads ---


class ThreadSectionMoveParams(Params, frozen=True, kw_only=True):
    """A `section_id` of null takes the thread out of its section."""

    thread_id: str
    section_id: str | None
    before_thread_id: str | None = None


ThreadSectionMoveResponse = Empty


class ThreadSectionListParams(Params, frozen=True, kw_only=True):
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ThreadSectionListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ThreadSection, ...]
    next_cursor: str | None = None


class ThreadSectionCreateParams(Params, frozen=True, kw_only=True):
    name: str
    appearance: ThreadSectionAppearance | None = None


class ThreadSectionCreateResponse(Wire, frozen=True, kw_only=True):
    section: ThreadSection


class ThreadSectionUpdateParams(Params, frozen=True, kw_only=True):
    """Without `appearance` it stays as it is, null clears it."""

    name: str
    section_id: str
    appearance: ThreadSectionAppearance | UnsetType | None = UNSET


class ThreadSectionUpdateResponse(Wire, frozen=True, kw_only=True):
    section: ThreadSection


class ThreadSectionDeleteParams(Params, frozen=True, kw_only=True):
    section_id: str


ThreadSectionDeleteResponse = Empty
