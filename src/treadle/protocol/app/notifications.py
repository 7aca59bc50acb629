"""Notifications of a server about items, turns and threads, and about itself: warnings, answered requests, rerouted
models. Those of other areas are beside the methods of their area."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Open, OrUnknown, Wire, Word
from treadle.protocol.app.item_parts import FileUpdateChange
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.settings import ThreadSettings
from treadle.protocol.app.threads import Thread, ThreadGoal, ThreadReadState, ThreadStatus, ThreadTokenUsage
from treadle.protocol.app.turns import Turn, TurnError, TurnLimit

ModelRerouteReason = Literal["highRiskCyberActivity"]


class TextPosition(Wire, frozen=True, kw_only=True):
    column: int
    line: int


class TextRange(Wire, frozen=True, kw_only=True):
    end: TextPosition
    start: TextPosition


class ErrorNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    error: TurnError
    will_retry: bool


class ServerRequestResolvedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    request_id: int | str


class ModelReroutedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    from_model: str
    reason: Open[ModelRerouteReason]
    to_model: str


class WarningNotification(Wire, frozen=True, kw_only=True):
    """Ours are `limit`, the one that the warning is about, and with it `turn_id`, the turn that it ended."""

    message: str
    thread_id: str | None = None
    limit: TurnLimit | UnsetType = UNSET
    turn_id: str | UnsetType = UNSET


class EnvironmentConnectionNotification(Wire, frozen=True, kw_only=True):
    """The connection to another machine, on which a thread works, was lost or is there again."""

    thread_id: str
    environment_id: str


class DeprecationNoticeNotification(Wire, frozen=True, kw_only=True):
    summary: str
    details: str | None = None


class ConfigWarningNotification(Wire, frozen=True, kw_only=True):
    summary: str
    details: str | None = None
    path: str | None = None
    range: TextRange | None = None


# --- items ---


class ItemStartedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item: ThreadItem
    started_at_ms: int = 0


class ItemCompletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    completed_at_ms: int = 0
    item: ThreadItem


class AgentMessageDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class PlanDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class CommandExecutionOutputDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class TerminalInteractionNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    process_id: str
    stdin: str


class FileChangeOutputDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class FileChangePatchUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    changes: tuple[FileUpdateChange, ...]


class McpToolCallProgressNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    message: str


class ReasoningSummaryTextDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    summary_index: int


class ReasoningSummaryPartAddedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    summary_index: int


class ReasoningTextDeltaNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    content_index: int
    delta: str


# --- threads and turns ---


class TurnPlanStepStatus(Word):
    pending = "pending"
    in_progress = "inProgress"
    completed = "completed"


class TurnPlanStep(Wire, frozen=True, kw_only=True):
    status: Open[TurnPlanStepStatus]
    step: str


class ThreadStartedNotification(Wire, frozen=True, kw_only=True):
    thread: Thread


class ThreadStatusChangedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    status: OrUnknown[ThreadStatus]


class ThreadReadStateChangedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    read_state: ThreadReadState


class ThreadArchivedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadDeletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadUnarchivedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadClosedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadRevertedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadNameUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    thread_name: str | None = None


class ThreadGoalUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    goal: ThreadGoal
    turn_id: str | None = None


class ThreadGoalClearedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str


class ThreadSettingsUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    thread_settings: ThreadSettings


class ThreadTokenUsageUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage


class TurnStartedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn: Turn


class TurnCompletedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn: Turn


class TurnDiffUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    diff: str


class TurnPlanUpdatedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    plan: tuple[TurnPlanStep, ...]
    explanation: str | None = None


class ContextCompactedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
