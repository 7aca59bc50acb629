"""Automatic review of approvals: what was looked at and what was decided."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.app.approvals import NetworkApprovalProtocol
from treadle.protocol.app.base import Open, OrUnknown, Variant, Wire, Word
from treadle.protocol.app.permissions import RequestPermissionProfile


class GuardianApprovalReviewStatus(Word):
    in_progress = "inProgress"
    approved = "approved"
    denied = "denied"
    timed_out = "timedOut"
    aborted = "aborted"


class GuardianRiskLevel(Word):
    low = "low"
    medium = "medium"
    high = "high"
    critical = "critical"


class GuardianUserAuthorization(Word):
    unknown = "unknown"
    low = "low"
    medium = "medium"
    high = "high"


class GuardianCommandSource(Word):
    shell = "shell"
    unified_exec = "unifiedExec"


AutoReviewDecisionSource = Literal["agent"]


class GuardianApprovalReview(Wire, frozen=True, kw_only=True):
    status: Open[GuardianApprovalReviewStatus]
    rationale: str | None = None
    risk_level: Open[GuardianRiskLevel] | None = None
    user_authorization: Open[GuardianUserAuthorization] | None = None


class CommandGuardianApprovalReviewAction(Variant, frozen=True, kw_only=True, tag="command"):
    command: str
    cwd: str
    source: Open[GuardianCommandSource]


class ExecveGuardianApprovalReviewAction(Variant, frozen=True, kw_only=True, tag="execve"):
    argv: tuple[str, ...]
    cwd: str
    program: str
    source: Open[GuardianCommandSource]


class WriteStdinGuardianApprovalReviewAction(Variant, frozen=True, kw_only=True, tag="writeStdin"):
    approval_id: str
    cwd: str
    process_id: str
    stdin: str


class ApplyPatchGuardianApprovalReviewAction(Variant, frozen=True, kw_only=True, tag="applyPatch"):
    cwd: str
    files: tuple[str, ...]


class NetworkAccessGuardianApprovalReviewAction(Variant, frozen=True, kw_only=True, tag="networkAccess"):
    host: str
    port: int
    protocol: Open[NetworkApprovalProtocol]
    target: str


class McpToolCallGuardianApprovalReviewAction(Variant, frozen=True, kw_only=True, tag="mcpToolCall"):
    server: str
    tool_name: str
    connector_id: str | None = None
    connector_name: str | None = None
    tool_title: str | None = None


class RequestPermissionsGuardianApprovalReviewAction(Variant, frozen=True, kw_only=True, tag="requestPermissions"):
    permissions: RequestPermissionProfile
    reason: str | None = None


GuardianApprovalReviewAction = (
    CommandGuardianApprovalReviewAction
    | ExecveGuardianApprovalReviewAction
    | WriteStdinGuardianApprovalReviewAction
    | ApplyPatchGuardianApprovalReviewAction
    | NetworkAccessGuardianApprovalReviewAction
    | McpToolCallGuardianApprovalReviewAction
    | RequestPermissionsGuardianApprovalReviewAction
)


class ItemGuardianApprovalReviewStartedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    action: OrUnknown[GuardianApprovalReviewAction]
    review: GuardianApprovalReview
    review_id: str
    started_at_ms: int
    target_item_id: str | None = None


class ItemGuardianApprovalReviewCompletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    action: OrUnknown[GuardianApprovalReviewAction]
    completed_at_ms: int
    decision_source: Open[AutoReviewDecisionSource]
    review: GuardianApprovalReview
    review_id: str
    started_at_ms: int
    target_item_id: str | None = None


class GuardianWarningNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    message: str
