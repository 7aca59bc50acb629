"""What a server asks of its client (`…Params`, open) and what the client answers (`…Response`, closed): approvals,
permissions beyond the sandbox, and questions to a person; and the automatic review of approvals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Closed, Open, OrUnknown, UnionMember, Unknown, Variant, Wire, Word, union
from treadle.protocol.app.item_parts import CommandAction

CommandExecutionApprovalKind = Literal["command", "writeStdin"]


class NetworkApprovalProtocol(Word):
    http = "http"
    https = "https"
    socks5_tcp = "socks5Tcp"
    socks5_udp = "socks5Udp"


NetworkPolicyRuleAction = Literal["allow", "deny"]


class NetworkApprovalContext(Wire, frozen=True, kw_only=True):
    host: str
    protocol: Open[NetworkApprovalProtocol]


class NetworkPolicyAmendment(Wire, frozen=True, kw_only=True):
    action: NetworkPolicyRuleAction
    host: str


class ExecpolicyAmendment(Wire, frozen=True, kw_only=True):
    execpolicy_amendment: tuple[str, ...] = field(name="execpolicy_amendment")


class NetworkAmendment(Wire, frozen=True, kw_only=True):
    network_policy_amendment: NetworkPolicyAmendment = field(name="network_policy_amendment")


class AcceptWithExecpolicyAmendmentDecision(UnionMember, frozen=True, kw_only=True):
    accept_with_execpolicy_amendment: ExecpolicyAmendment


class ApplyNetworkPolicyAmendmentDecision(UnionMember, frozen=True, kw_only=True):
    apply_network_policy_amendment: NetworkAmendment


Decision = Literal["accept", "acceptForSession", "decline", "cancel"]
_Decisions = Decision | AcceptWithExecpolicyAmendmentDecision | ApplyNetworkPolicyAmendmentDecision

if TYPE_CHECKING:
    CommandExecutionApprovalDecision = _Decisions
    OfferedDecision = _Decisions | str | Unknown
else:
    # msgspec tells structs apart by a tag only; these are told apart by their one member.
    CommandExecutionApprovalDecision = union("CommandExecutionApprovalDecision", get_args(_Decisions), unknown=None)
    OfferedDecision = union("OfferedDecision", get_args(_Decisions))


class CommandExecutionRequestApprovalParams(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: int
    approval_id: str | UnsetType | None = UNSET
    command: str | None = None
    command_actions: tuple[OrUnknown[CommandAction], ...] | None = None
    cwd: str | None = None
    environment_id: str | None = None
    kind: Open[CommandExecutionApprovalKind] = "command"
    network_approval_context: NetworkApprovalContext | UnsetType | None = UNSET
    proposed_execpolicy_amendment: tuple[str, ...] | None = None
    proposed_network_policy_amendments: tuple[NetworkPolicyAmendment, ...] | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET
    available_decisions: tuple[OfferedDecision, ...] | UnsetType | None = UNSET


class CommandExecutionRequestApprovalResponse(Wire, frozen=True, kw_only=True):
    decision: CommandExecutionApprovalDecision


class FileChangeRequestApprovalParams(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: int
    grant_root: str | None = None
    reason: str | None = None


FileChangeApprovalDecision = Decision


class FileChangeRequestApprovalResponse(Wire, frozen=True, kw_only=True):
    decision: FileChangeApprovalDecision


class PermissionsRequestApprovalParams(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    cwd: str
    permissions: RequestPermissionProfile
    started_at_ms: int
    environment_id: str | None = None
    reason: str | None = None


class PermissionsRequestApprovalResponse(Wire, frozen=True, kw_only=True):
    permissions: RequestPermissionProfile
    scope: Literal["turn", "session"] = "turn"


# --- permissions: what a turn may be allowed beyond its sandbox ---


class FileSystemAccessMode(Word):
    read = "read"
    write = "write"
    deny = "deny"


class FileSystemSpecialPath(Wire, frozen=True, kw_only=True):
    """`path` belongs to the kind `unknown`, `subpath` to `project_roots` and `unknown`."""

    kind: Literal["root", "minimal", "project_roots", "tmpdir", "slash_tmp", "unknown"]
    path: str | UnsetType = UNSET
    subpath: str | UnsetType | None = UNSET


class PathFileSystemPath(Variant, frozen=True, kw_only=True, tag="path"):
    path: str


class GlobPatternFileSystemPath(Variant, frozen=True, kw_only=True, tag="glob_pattern"):
    pattern: str


class SpecialFileSystemPath(Variant, frozen=True, kw_only=True, tag="special"):
    value: FileSystemSpecialPath


FileSystemPath = PathFileSystemPath | GlobPatternFileSystemPath | SpecialFileSystemPath


class FileSystemSandboxEntry(Wire, frozen=True, kw_only=True):
    access: Closed[FileSystemAccessMode]
    path: FileSystemPath


class AdditionalFileSystemPermissions(Wire, frozen=True, kw_only=True):
    entries: tuple[FileSystemSandboxEntry, ...] | None = None
    glob_scan_max_depth: int | None = None
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None


class AdditionalNetworkPermissions(Wire, frozen=True, kw_only=True):
    enabled: bool | None = None


class RequestPermissionProfile(Wire, frozen=True, kw_only=True):
    file_system: AdditionalFileSystemPermissions | None = None
    network: AdditionalNetworkPermissions | None = None


# --- questions to a person ---


class ToolRequestUserInputOption(Wire, frozen=True, kw_only=True):
    description: str
    label: str


class ToolRequestUserInputQuestion(Wire, frozen=True, kw_only=True):
    id: str
    header: str
    question: str
    is_other: bool = False
    is_secret: bool = False
    options: tuple[ToolRequestUserInputOption, ...] | None = None


class ToolRequestUserInputParams(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    is_blocking: bool
    questions: tuple[ToolRequestUserInputQuestion, ...]
    auto_resolution_ms: int | None = None


class ToolRequestUserInputAnswer(Wire, frozen=True, kw_only=True):
    """May answer a question that is marked secret, so it does not show itself."""

    _hidden: ClassVar = ("answers",)

    answers: tuple[str, ...]


class ToolRequestUserInputResponse(Wire, frozen=True, kw_only=True):
    answers: Mapping[str, ToolRequestUserInputAnswer]


class McpServerElicitationRequestParams(Wire, frozen=True, kw_only=True):
    """`requested_schema` belongs to the form modes, `url` and `elicitation_id` to the mode `url`."""

    thread_id: str
    server_name: str
    mode: Open[Literal["form", "openai/form", "openaiForm", "url"]]
    message: str
    turn_id: str | None = None
    requested_schema: Any | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    meta: Any = field(name="_meta", default=None)


class McpServerElicitationRequestResponse(Wire, frozen=True, kw_only=True):
    """`content` may be what a person typed into a form, so it does not show itself."""

    _hidden: ClassVar = ("content",)

    action: Literal["accept", "decline", "cancel"]
    content: Any = None
    meta: Any = field(name="_meta", default=None)


# --- automatic review of approvals ---


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
