"""What the server asks of its client (`…Params`, open) and what the client answers (`…Response`, closed)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.actions import CommandAction
from treadle.protocol.app.base import Member, Open, OrUnknown, Unknown, Wire, Word, union
from treadle.protocol.app.permissions import RequestPermissionProfile

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


class AcceptWithExecpolicyAmendmentDecision(Member, frozen=True, kw_only=True):
    accept_with_execpolicy_amendment: ExecpolicyAmendment


class ApplyNetworkPolicyAmendmentDecision(Member, frozen=True, kw_only=True):
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
