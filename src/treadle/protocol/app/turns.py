"""`Turn`, why one failed (`TurnError`), and the params and results of turn/* and review/start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import (
    Closed,
    Dollars,
    Empty,
    Open,
    Params,
    Tokens,
    UnionMember,
    Unknown,
    Unsigned32,
    Variant,
    Wire,
    Word,
    union,
)
from treadle.protocol.app.item_parts import FunctionCallOutputBody, UserInput
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.settings import (
    ApprovalsReviewer,
    AskForApproval,
    CollaborationMode,
    Personality,
    ReasoningSummary,
    SandboxPolicy,
    TurnEnvironmentParams,
    WantedEffort,
)


class TurnStatus(Word):
    completed = "completed"
    interrupted = "interrupted"
    failed = "failed"
    in_progress = "inProgress"


class TurnItemsView(Word):
    not_loaded = "notLoaded"
    summary = "summary"
    full = "full"


class ReviewDelivery(Word):
    inline = "inline"
    detached = "detached"


class Turn(Wire, frozen=True, kw_only=True):
    """Times are Unix seconds. `items_view` says how much of the turn is in `items`."""

    id: str
    items: tuple[ThreadItem, ...]
    status: Open[TurnStatus]
    completed_at: int | None = None
    duration_ms: int | None = None
    error: TurnError | None = None
    items_view: Open[TurnItemsView] = TurnItemsView.full
    root_turn_id: str | None = None
    started_at: int | None = None


class TurnToolOutput(Wire, frozen=True, kw_only=True):
    name: str
    output: FunctionCallOutputBody
    namespace: str | None = None
    retain: bool = False


class TurnStartParams(Params, frozen=True, kw_only=True):
    """The settings stay for later turns, except `output_schema`, `service_tier_for_turn` and those that begin with
    `max_`."""

    thread_id: str
    input: tuple[UserInput, ...]
    approval_policy: AskForApproval | None = None
    approvals_reviewer: Closed[ApprovalsReviewer] | None = None
    client_user_message_id: str | None = None
    cwd: str | None = None
    disabled_plugin_ids: tuple[str, ...] | None = None
    effort: WantedEffort | None = None
    model: str | None = None
    output_schema: Any = None
    parent_turn_id: str | None = None
    personality: Closed[Personality] | None = None
    root_turn_id: str | None = None
    sandbox_policy: SandboxPolicy | None = None
    service_tier: str | UnsetType | None = UNSET
    service_tier_for_turn: str | UnsetType | None = UNSET
    summary: Closed[ReasoningSummary] | None = None
    tool_output: TurnToolOutput | None = None
    turn_trigger: str | None = None
    collaboration_mode: CollaborationMode | None = None
    """Experimental in Codex."""
    environments: tuple[TurnEnvironmentParams, ...] | None = None
    """Experimental in Codex. An empty list: from now on the thread has none."""
    permissions: str | None = None
    runtime_workspace_roots: tuple[str, ...] | None = None
    max_iterations: Unsigned32 | None = None
    """Rounds of tool calls. After them the model is asked once more, without tools, for its answer. Ours alone."""
    max_output_tokens: Unsigned32 | None = None
    """Tokens of one response, in place of the model's own limit. Ours alone."""
    max_turn_tokens: Tokens | None = None
    """What the turn may use, with its sub-agents: then it fails. Ours alone, as the next."""
    max_turn_cost_usd: Dollars | None = None


class TurnStartResponse(Wire, frozen=True, kw_only=True):
    turn: Turn


class TurnSteerParams(Params, frozen=True, kw_only=True):
    thread_id: str
    expected_turn_id: str
    input: tuple[UserInput, ...]
    client_user_message_id: str | None = None


class TurnSteerResponse(Wire, frozen=True, kw_only=True):
    turn_id: str


class TurnInterruptParams(Params, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str


TurnInterruptResponse = Empty


class UncommittedChangesReviewTarget(Variant, frozen=True, kw_only=True, tag="uncommittedChanges"):
    pass


class BaseBranchReviewTarget(Variant, frozen=True, kw_only=True, tag="baseBranch"):
    branch: str


class CommitReviewTarget(Variant, frozen=True, kw_only=True, tag="commit"):
    sha: str
    title: str | None = None


class CustomReviewTarget(Variant, frozen=True, kw_only=True, tag="custom"):
    instructions: str


ReviewTarget = UncommittedChangesReviewTarget | BaseBranchReviewTarget | CommitReviewTarget | CustomReviewTarget


class ReviewStartParams(Params, frozen=True, kw_only=True):
    thread_id: str
    target: ReviewTarget
    delivery: Closed[ReviewDelivery] | None = None


class ReviewStartResponse(Wire, frozen=True, kw_only=True):
    review_thread_id: str
    turn: Turn


# --- failures ---


class NonSteerableTurnKind(Word):
    review = "review"
    compact = "compact"


CodexErrorWord = Literal[
    "contextWindowExceeded",
    "sessionBudgetExceeded",
    "usageLimitExceeded",
    "rateLimitExceeded",
    "flexUnavailable",
    "serverOverloaded",
    "modelNotFound",
    "policyCapacityUnavailable",
    "cyberPolicy",
    "misalignmentPolicyViolation",
    "tooManyDenials",
    "internalServerError",
    "unauthorized",
    "badRequest",
    "threadRollbackFailed",
    "sandboxError",
    "other",
]


class HttpFailure(Wire, frozen=True, kw_only=True):
    http_status_code: int | None = None


class ActiveTurnNotSteerable(Wire, frozen=True, kw_only=True):
    turn_kind: Open[NonSteerableTurnKind]


class HttpConnectionFailedCodexErrorInfo(UnionMember, frozen=True, kw_only=True):
    http_connection_failed: HttpFailure


class ResponseStreamConnectionFailedCodexErrorInfo(UnionMember, frozen=True, kw_only=True):
    response_stream_connection_failed: HttpFailure


class ResponseStreamDisconnectedCodexErrorInfo(UnionMember, frozen=True, kw_only=True):
    response_stream_disconnected: HttpFailure


class ResponseTooManyFailedAttemptsCodexErrorInfo(UnionMember, frozen=True, kw_only=True):
    response_too_many_failed_attempts: HttpFailure


class ActiveTurnNotSteerableCodexErrorInfo(UnionMember, frozen=True, kw_only=True):
    active_turn_not_steerable: ActiveTurnNotSteerable


KnownErrorInfo = (
    CodexErrorWord
    | HttpConnectionFailedCodexErrorInfo
    | ResponseStreamConnectionFailedCodexErrorInfo
    | ResponseStreamDisconnectedCodexErrorInfo
    | ResponseTooManyFailedAttemptsCodexErrorInfo
    | ActiveTurnNotSteerableCodexErrorInfo
)

if TYPE_CHECKING:
    CodexErrorInfo = KnownErrorInfo | str | Unknown
else:
    CodexErrorInfo = union("CodexErrorInfo", get_args(KnownErrorInfo))


class MisalignmentSteer(Wire, frozen=True, kw_only=True):
    message: str


class MisalignmentErrorDetails(Wire, frozen=True, kw_only=True):
    detailed_explanation: str | None = None
    error_type: str | None = None
    review_target: str | None = None
    steer: MisalignmentSteer | None = None


class ModelFailure(Wire, frozen=True, kw_only=True):
    """Why a model gave no answer (`kind`, such as `rate_limited`), and `advice`: what to type. Ours alone sends it."""

    kind: str
    advice: str
    status: int | None = None
    retry_after_s: float | None = None


class TurnLimit(Wire, frozen=True, kw_only=True):
    """A limit that was reached: ours. `kind` is `turnIterations`, `turnTokens`, `turnCostUsd`, `threadTokens` or
    `threadCostUsd`; `used` is null when nobody knows it, and `thread_id` says whose limit it is: that of the thread, or
    of the one that it works for."""

    kind: str
    limit: int | float
    thread_id: str
    used: int | float | None = None


class TurnError(Wire, frozen=True, kw_only=True):
    """`message` is for a person, `codex_error_info` for a program."""

    message: str
    additional_details: str | None = None
    codex_error_info: CodexErrorInfo | None = None
    misalignment: MisalignmentErrorDetails | None = None
    failure: ModelFailure | UnsetType = UNSET
    limit: TurnLimit | UnsetType = UNSET
