"""How a thread runs: model, approvals, sandbox, collaboration mode.

Owns the vocabulary only; what the values allow is decided elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from treadle.protocol.app.base import Empty, Member, Open, OrUnknown, Params, Variant, Wire

ApprovalsReviewer = Literal["user", "auto_review", "guardian_subagent"]
Personality = Literal["none", "friendly", "pragmatic"]
SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]
ReasoningSummary = Literal["auto", "concise", "detailed", "none"]
NetworkAccess = Literal["restricted", "enabled"]
ModeKind = Literal["plan", "default"]


ReasoningEffort = Annotated[str, Meta(min_length=1)]
"""As a client asks for it; which ones exist depends on the model."""


class Granular(Wire, frozen=True, kw_only=True):
    mcp_elicitations: bool = field(name="mcp_elicitations")
    rules: bool
    sandbox_approval: bool = field(name="sandbox_approval")
    request_permissions: bool = field(name="request_permissions", default=False)
    skill_approval: bool = field(name="skill_approval", default=False)


class GranularAskForApproval(Member, frozen=True, kw_only=True):
    granular: Granular


AskForApproval = Literal["untrusted", "on-request", "never"] | GranularAskForApproval


class DangerFullAccessSandboxPolicy(Variant, frozen=True, kw_only=True, tag="dangerFullAccess"):
    pass


class ReadOnlySandboxPolicy(Variant, frozen=True, kw_only=True, tag="readOnly"):
    network_access: bool = False


class ExternalSandboxSandboxPolicy(Variant, frozen=True, kw_only=True, tag="externalSandbox"):
    network_access: NetworkAccess = "restricted"


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
    mode: ModeKind
    settings: Settings


class ActivePermissionProfile(Wire, frozen=True, kw_only=True):
    id: str
    extends: str | None = None


class ThreadSettings(Wire, frozen=True, kw_only=True):
    approval_policy: OrUnknown[AskForApproval | str]
    approvals_reviewer: Open[ApprovalsReviewer]
    collaboration_mode: CollaborationMode
    cwd: str
    model: str
    model_provider: str
    sandbox_policy: OrUnknown[SandboxPolicy]
    active_permission_profile: ActivePermissionProfile | None = None
    disabled_plugin_ids: tuple[str, ...] = ()
    effort: str | None = None
    personality: Open[Personality] | None = None
    service_tier: str | None = None
    summary: Open[ReasoningSummary] | None = None


class ThreadSettingsUpdateParams(Params, frozen=True, kw_only=True):
    """Experimental in Codex. What is left out stays as it is."""

    thread_id: str
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    collaboration_mode: CollaborationMode | None = None
    cwd: str | None = None
    effort: ReasoningEffort | None = None
    model: str | None = None
    personality: Personality | None = None
    sandbox_policy: SandboxPolicy | None = None
    service_tier: str | UnsetType | None = UNSET
    summary: ReasoningSummary | None = None


ThreadSettingsUpdateResponse = Empty
