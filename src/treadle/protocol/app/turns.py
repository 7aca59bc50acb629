"""`Turn`, and the params and results of turn/* and review/start."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Closed, Empty, Open, Params, Variant, Wire, Word
from treadle.protocol.app.inputs import UserInput
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.outputs import FunctionCallOutputBody
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
from treadle.protocol.app.turn_errors import TurnError


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
    """The settings stay for later turns, except `output_schema` and `service_tier_for_turn`."""

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
