"""How a thread runs: model, approvals, sandbox, collaboration mode.

Owns the vocabulary only; what the values allow is decided elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, Meta, UnsetType, field

from treadle.protocol.app.base import (
    Closed,
    Dollars,
    Empty,
    Open,
    OrUnknown,
    Params,
    Tokens,
    UnionMember,
    Variant,
    Wire,
    Word,
)


class ApprovalsReviewer(Word):
    user = "user"
    auto_review = "auto_review"
    guardian_subagent = "guardian_subagent"


class Personality(Word):
    none = "none"
    friendly = "friendly"
    pragmatic = "pragmatic"


class SandboxMode(Word):
    read_only = "read-only"
    workspace_write = "workspace-write"
    danger_full_access = "danger-full-access"


class ReasoningSummary(Word):
    auto = "auto"
    concise = "concise"
    detailed = "detailed"
    none = "none"


class NetworkAccess(Word):
    restricted = "restricted"
    enabled = "enabled"


class ModeKind(Word):
    plan = "plan"
    default = "default"


class ReasoningEffort(Word):
    """Which ones exist depends on the model."""

    none = "none"
    minimal = "minimal"
    low = "low"
    medium = "medium"
    high = "high"
    xhigh = "xhigh"
    max = "max"
    ultra = "ultra"


if TYPE_CHECKING:
    WantedEffort = ReasoningEffort | str
else:
    WantedEffort = Annotated[str, Meta(min_length=1)]
    """An effort as clients ask for it: any word."""


class AskForApprovalValue(Word):
    untrusted = "untrusted"
    on_request = "on-request"
    never = "never"


class Granular(Wire, frozen=True, kw_only=True):
    mcp_elicitations: bool = field(name="mcp_elicitations")
    rules: bool
    sandbox_approval: bool = field(name="sandbox_approval")
    request_permissions: bool = field(name="request_permissions", default=False)
    skill_approval: bool = field(name="skill_approval", default=False)


class GranularAskForApproval(UnionMember, frozen=True, kw_only=True):
    granular: Granular


AskForApproval = Closed[AskForApprovalValue] | GranularAskForApproval
KnownApproval = AskForApprovalValue | GranularAskForApproval
"""The approval policy as a client receives it."""


class DangerFullAccessSandboxPolicy(Variant, frozen=True, kw_only=True, tag="dangerFullAccess"):
    pass


class ReadOnlySandboxPolicy(Variant, frozen=True, kw_only=True, tag="readOnly"):
    network_access: bool = False


class ExternalSandboxSandboxPolicy(Variant, frozen=True, kw_only=True, tag="externalSandbox"):
    network_access: Closed[NetworkAccess] = "restricted"


class WorkspaceWriteSandboxPolicy(Variant, frozen=True, kw_only=True, tag="workspaceWrite"):
    exclude_slash_tmp: bool = False
    exclude_tmpdir_env_var: bool = False
    network_access: bool = False
    writable_roots: tuple[str, ...] = ()


SandboxPolicy = (
    DangerFullAccessSandboxPolicy | ReadOnlySandboxPolicy | ExternalSandboxSandboxPolicy | WorkspaceWriteSandboxPolicy
)


class Settings(Wire, frozen=True, kw_only=True):
    model: str
    developer_instructions: str | None = field(name="developer_instructions", default=None)
    reasoning_effort: str | None = field(name="reasoning_effort", default=None)


class CollaborationMode(Wire, frozen=True, kw_only=True):
    mode: Closed[ModeKind]
    settings: Settings


class CollaborationModeMask(Wire, frozen=True, kw_only=True):
    """A mode that clients can offer. What is null is left to the thread."""

    name: str
    mode: Open[ModeKind] | None = None
    model: str | None = None
    reasoning_effort: str | None = field(name="reasoning_effort", default=None)


class CollaborationModeListParams(Params, frozen=True, kw_only=True):
    """Experimental in Codex."""


class CollaborationModeListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[CollaborationModeMask, ...]


class TurnEnvironmentParams(Params, frozen=True, kw_only=True):
    """A place where commands run, and the directory there. Without one, which Codex does not know, that is where the
    environment itself works."""

    environment_id: str
    cwd: str | None = None
    runtime_workspace_roots: tuple[str, ...] | None = None


class ActivePermissionProfile(Wire, frozen=True, kw_only=True):
    id: str
    extends: str | None = None


class ThreadSettings(Wire, frozen=True, kw_only=True):
    approval_policy: OrUnknown[KnownApproval | str]
    approvals_reviewer: Open[ApprovalsReviewer]
    collaboration_mode: CollaborationMode
    cwd: str
    model: str
    model_provider: str
    sandbox_policy: OrUnknown[SandboxPolicy]
    active_permission_profile: ActivePermissionProfile | None = None
    disabled_plugin_ids: tuple[str, ...] = ()
    effort: Open[ReasoningEffort] | None = None
    personality: Open[Personality] | None = None
    service_tier: str | None = None
    summary: Open[ReasoningSummary] | None = None


class ThreadSettingsUpdateParams(Params, frozen=True, kw_only=True):
    """Experimental in Codex. What is left out stays as it is."""

    thread_id: str
    approval_policy: AskForApproval | None = None
    approvals_reviewer: Closed[ApprovalsReviewer] | None = None
    collaboration_mode: CollaborationMode | None = None
    cwd: str | None = None
    effort: WantedEffort | None = None
    model: str | None = None
    permissions: str | None = None
    """The id of a permission profile, instead of `sandbox_policy`."""
    personality: Closed[Personality] | None = None
    sandbox_policy: SandboxPolicy | None = None
    service_tier: str | UnsetType | None = UNSET
    summary: Closed[ReasoningSummary] | None = None
    max_thread_tokens: Tokens | UnsetType | None = UNSET
    """As in `thread/start`. Ours alone, as the next."""
    max_thread_cost_usd: Dollars | UnsetType | None = UNSET
    environments: tuple[TurnEnvironmentParams, ...] | None = None
    """As in `turn/start`. Ours alone."""


ThreadSettingsUpdateResponse = Empty
